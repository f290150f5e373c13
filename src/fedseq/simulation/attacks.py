"""What simulated attackers do: they falsify the update they send, or the data they train on.

Each attack is a row of ATTACKS, written as NAME or NAME:NUMBER. Attackers on data train on false data from the start,
also in pre-training, unless they behave honestly at first; attackers on updates send false ones in training and when
the gate is calibrated, but not in pre-training.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from fedseq.basics.errors import FedSeqError


class Attack(NamedTuple):
    """What an attacker does; the defaults are those of an honest client."""

    factor: float = 1.0  # that multiplies its update
    flipped: float = 0.0  # share of its examples whose label c becomes C - 1 - c
    triggered: float = 0.0  # share of its examples that get the trigger, and the label 0
    loss: float | None = None  # the training loss it reports instead of its own
    honest_rounds: int = 0  # first rounds, in which its labels are true

    @property
    def on_data(self) -> bool:
        return self.flipped > 0 or self.triggered > 0


class AttackRow(NamedTuple):
    make: Callable[[float], Attack]
    number: str = ""  # what the number after the colon means
    usual: float | None = None  # the default number; None if the number is required


ATTACKS = {
    "nan": AttackRow(lambda _: Attack(factor=math.nan)),
    "sign-flip": AttackRow(lambda _: Attack(factor=-1.0)),
    "scale": AttackRow(lambda factor: Attack(factor=factor), "FACTOR"),
    "label-flip": AttackRow(lambda share: Attack(flipped=share), "SHARE", 1.0),
    "quiet-label-flip": AttackRow(lambda share: Attack(flipped=share, loss=0.0), "SHARE", 1.0),
    "late-label-flip": AttackRow(lambda rounds: Attack(flipped=1.0, honest_rounds=int(rounds)), "ROUNDS", 10),
    "backdoor": AttackRow(lambda share: Attack(triggered=share), "SHARE", 0.5),
}


def parse_attack(text: str) -> Attack:
    name, colon, written = text.partition(":")
    row = ATTACKS.get(name)
    if row is not None and not colon and (row.usual is not None or not row.number):
        return row.make(row.usual or 0.0)
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if row is None or not row.number or not math.isfinite(number):
        raise FedSeqError(f"unknown attack '{text}'. Valid: {described()} (e.g. scale:10).")
    if row.number == "SHARE" and not 0 < number <= 1:
        raise FedSeqError(f"attack '{text}': the share of an attacker's examples must be greater than 0 and at most 1.")
    if row.number == "ROUNDS" and not (number >= 1 and number == int(number)):
        raise FedSeqError(f"attack '{text}': an attacker behaves for a whole number of rounds, at least 1.")
    return row.make(number)


def number_of_attackers(share: float, num_clients: int) -> int:
    """The share in whole clients, computed in decimals as it is written; half a client is rounded up."""
    count = int((Decimal(str(share)) * num_clients).quantize(Decimal(1), ROUND_HALF_UP))
    if share > 0 and count == 0:
        least = math.ceil(1000 * 0.5 / num_clients) / 1000
        whom = f"{num_clients} client{'s' if num_clients > 1 else ''}"
        raise FedSeqError(
            f"--attacker-fraction {share:g} of {whom} is nobody. Use --attacker-fraction {least:g} or more."
        )
    return count


def described() -> str:
    """All attacks in the form in which they are written."""
    suffixes = {
        name: "" if not row.number else f":{row.number}" if row.usual is None else f"[:{row.number}]"
        for name, row in ATTACKS.items()
    }
    return ", ".join(name + suffix for name, suffix in suffixes.items())
