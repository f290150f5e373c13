"""How much of the paper's budget is spent: `tiny` in minutes on embedded data, `small` in hours, `paper` in weeks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedseq.basics.errors import unknown

TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "digits": "digits"}


@dataclass(frozen=True)
class Scale:
    name: str
    datasets: Mapping[str, str]  # the paper's data set: ours in its place; what is missing is not run
    seeds: tuple[int, ...]
    rounds: Mapping[str, int]  # by our data set
    centralized_rounds: int
    options: Mapping[str, Any] = field(default_factory=dict)  # of every run
    longest_pretraining: int = 40
    note: str = ""

    def describe(self) -> str:
        others = [f"{ours} in place of {TITLES[name]}" for name, ours in self.datasets.items() if ours != name]
        rounds = ", ".join(f"{count:,} rounds on {name}" for name, count in self.rounds.items())
        return "; ".join([*others, rounds, f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"])


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "tiny", {"cifar10": "digits"}, (0, 1, 2), {"digits": 60}, 30, {"model": "mlp"},
            note="Ours is on other data than the paper's: compare the order of the rows, not the numbers. A client "
            "holds 14 pictures and takes one SGD step a visit, where FedProx's pull is still zero: its rows equal "
            "those without it.",
        ),
        Scale(
            "small", {"cifar10": "cifar10", "cifar100": "cifar100"}, (0,), {"cifar10": 300, "cifar100": 300}, 20,
            {"eval_every": 5}, longest_pretraining=10,
        ),
        Scale(
            "paper", {"cifar10": "cifar10", "cifar100": "cifar100"}, (0,), {"cifar10": 10_000, "cifar100": 20_000}, 300,
        ),
    )
}  # fmt: skip


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
