"""Tables of published runs under attack: what `attacks.py` puts into docs/attacks.md."""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import fedseq
from fedseq.policies.attackers import attackers
from fedseq.report.formats import TextTable, to_markdown

TRIGGER = "backdoor.json"
AVERAGED = 3  # evaluations at the end of a run

ATTACKS = (
    "none", "sign-flip", "scale:-15", "label-flip", "backdoor", "scale:2.5", "quiet-label-flip:0.3", "late-label-flip",
)  # fmt: skip
RULES = {  # the gate's check, and the server's rule
    "size": ("size", ""),
    "exemplars": ("exemplars", ""),
    "median": ("size", "+median"),
    "exemplars and median": ("exemplars", "+median"),
}
ALPHAS = ("0", "0.5")


def final(run: fedseq.Run) -> float:
    return statistics.mean([accuracy for _, accuracy in run.evaluations][-AVERAGED:])


@dataclass(frozen=True)
class Kept:
    """What a published run tells."""

    alpha: str
    attack: str
    rule: str
    seed: int
    units: int  # a round, where they are clients
    accuracy: float
    honest_refused: float  # of all honest hops
    false_refused: float  # of the attackers'
    trigger_works: float | None


def read_all(folder: Path) -> Iterator[Kept]:
    for path in sorted(folder.glob("*/config.yaml")):
        run = fedseq.read_run(path.parent)
        config = run.config
        bad = set(attackers(config, config.num_clients))
        # Runs that were kept before there was `fedseq publish` name the clients alone.
        refused = [client for line in run.metrics for client in line.get("refused", ())]
        refused += [hop["client"] for line in run.metrics for hop in line.get("skipped", ())]
        false = sum(client in bad for client in refused)
        hops = sum(line["client_updates"] for line in run.metrics) + len(refused)
        # Every client is drawn about as often: the attackers' share of the hops is theirs of the clients.
        of_bad = hops * len(bad) / config.num_clients
        trigger = path.parent / TRIGGER
        yield Kept(
            f"{config.alpha:g}",
            config.attack or "none",
            next(
                rule
                for rule, (check, server) in RULES.items()
                if (check, bool(server)) == (config.update_check, config.algorithm.endswith("+median"))
            ),
            config.seed,
            round(config.fraction * config.num_clients),
            final(run),
            (len(refused) - false) / (hops - of_bad),
            min(1.0, false / of_bad) if bad else 0.0,
            json.loads(trigger.read_text())["trigger_works"] if trigger.exists() else None,
        )


def accuracy_table(runs: Sequence[Kept]) -> str:
    """A row for each attack: the mean over seeds, and the lowest."""
    most = max((len(cell) for cell in _cells(runs).values()), default=0)

    def text(cell: Sequence[Kept]) -> str:
        found = [100 * run.accuracy for run in cell]
        fewer = "" if len(found) == most else f", {len(found)} of {most} seeds"
        return _mean(found) + (f" ({min(found):.1f}){fewer}" if most > 1 else "")

    return _table(runs, text)


def refusal_table(runs: Sequence[Kept]) -> str:
    """Honest and attackers' hops that were refused, in percent."""

    def shares(cell: Sequence[Kept]) -> str:
        honest = 100 * statistics.mean(run.honest_refused for run in cell)
        false = 100 * statistics.mean(run.false_refused for run in cell)
        return f"{honest:.2f}" if cell[0].attack == "none" else f"{honest:.2f} / {false:.0f}"

    return _table(runs, shares)


def trigger_table(runs: Sequence[Kept]) -> str:
    """How often the trigger works, in percent of the pictures: the mean over seeds, and each."""

    def works(cell: Sequence[Kept]) -> str:
        found = [100 * run.trigger_works for run in cell if run.trigger_works is not None]
        return _mean_and_each(found, 0)

    return _table([run for run in runs if run.trigger_works is not None], works)


def loss_table(runs: Sequence[Kept]) -> str:
    """Points below the run of the same seed without attackers and without the check: their mean, and each."""
    clean = {(run.alpha, run.seed): run.accuracy for run in runs if (run.attack, run.rule) == ("none", "size")}

    def below(cell: Sequence[Kept]) -> str:
        found = [100 * (clean[run.alpha, run.seed] - run.accuracy) for run in cell if (run.alpha, run.seed) in clean]
        return _mean_and_each(found, 1) if found else "-"

    return _table([run for run in runs if (run.attack, run.rule) != ("none", "size")], below)


def units_table(runs: Sequence[Kept]) -> str:
    """A row for each alpha and number of clients a round, a column for each attack and rule."""
    found = {(run.attack, run.rule) for run in runs}
    columns = [column for column in product(ATTACKS, RULES) if column in found]
    rows = []
    for alpha, units in sorted({(run.alpha, run.units) for run in runs}):
        row = [run for run in runs if (run.alpha, run.units) == (alpha, units)]
        cells = [[100 * run.accuracy for run in row if (run.attack, run.rule) == column] for column in columns]
        rows.append([alpha, str(units), *(_mean_and_each(cell, 1) if cell else "-" for cell in cells)])
    names = [f"{attack}, {'median' if rule == 'median' else 'mean'}" for attack, rule in columns]
    return to_markdown(TextTable(["alpha", "clients a round", *names], rows))


def _cells(runs: Sequence[Kept]) -> dict[tuple[str, str, str], list[Kept]]:
    found: dict[tuple[str, str, str], list[Kept]] = {}
    for run in runs:
        found.setdefault((run.alpha, run.attack, run.rule), []).append(run)
    return found


def _table(runs: Sequence[Kept], text: Callable[[Sequence[Kept]], str]) -> str:
    """A row for each alpha and attack that was run, a column for each rule."""
    cells = _cells(runs)
    rules = [rule for rule in RULES if any(run.rule == rule for run in runs)]
    rows = []
    for alpha, attack in product(ALPHAS, ATTACKS):
        row = [cells.get((alpha, attack, rule)) for rule in rules]
        if any(row):
            rows.append([alpha, attack, *(text(cell) if cell else "-" for cell in row)])
    return to_markdown(TextTable(["alpha", "attack", *rules], rows))


def _mean(values: Sequence[float], digits: int = 1) -> str:
    return f"{statistics.mean(values):.{digits}f}"


def _mean_and_each(values: Sequence[float], digits: int) -> str:
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return _mean(values, digits) + (f" ({each})" if len(values) > 1 else "")
