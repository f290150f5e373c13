"""From a table or figure of the paper to the runs and studies it is made of, which several may share.

A scale says how much of the paper's budget is spent: `tiny` in minutes on embedded data, `small` in hours, `paper` in
weeks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.config_files import coerce
from fedseq.options.resolve import resolve
from fedseq.runs.folder import run_name
from fedseq.sweep.assignments import Assignment, on_serial_engine

NAMES = ("table1", "table2", "table3", "table4", "fig-curves", "fig-pretraining", "fig-pca", "fig-violins", "fig-es")
TUNING = ("tuning-fedprox", "tuning-feddyn", "tuning-feddyn-lr")  # what the paper tried before; not part of `all`
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


@dataclass(frozen=True)
class Experiment:
    """One file of experiments/."""

    name: str
    title: str
    kind: str
    datasets: Sequence[str]  # as in the paper
    alphas: Sequence[float]
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the paper's name: options
    published: str | None = None
    centralized: bool = False  # needs the centralized bound
    epochs: Sequence[int] = ()  # of pre-training, for a study of grouping
    seeds: int | None = None  # at most as many
    notes: str = ""


@dataclass(frozen=True)
class PaperPlan:
    """An experiment at a scale, in a folder."""

    experiment: Experiment
    scale: Scale
    root: Path
    data_dir: str | None = None
    absent: Mapping[str, str] = field(default_factory=dict)  # our data sets that cannot be read, and why

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.scale.seeds[: self.experiment.seeds]

    def ours(self, dataset: str) -> str | None:
        """Our data set in place of the paper's, if there is one and its data is there."""
        name = self.scale.datasets.get(dataset)
        return None if name is None or name in self.absent else name

    def why_not(self, dataset: str) -> str:
        name = self.scale.datasets.get(dataset)
        return f"it is not in scale {self.scale.name}" if name is None else f"there is no {name} data"

    def runs(self, dataset: str, alpha: float, row: Mapping[str, Any]) -> list[Assignment]:
        """A run for each seed; none where the data set is not run."""
        name = self.ours(dataset)
        if name is None:
            return []
        rounds = self.scale.rounds[name] // row.get("superclient_epochs", 1)
        options = {**self.scale.options, "dataset": name, "alpha": alpha, "rounds": rounds, **row}
        return [self._assignment({**options, "seed": seed}, row) for seed in self.seeds]

    def centralized(self, dataset: str) -> list[Assignment]:
        name = self.ours(dataset)
        options = {"dataset": name, "algorithm": "centralized", "rounds": self.scale.centralized_rounds}
        return [] if name is None else [self._assignment({**self.scale.options, **options, "seed": self.seeds[0]}, {})]

    def studies(self, dataset: str, alpha: float) -> list[Assignment]:
        name = self.ours(dataset)
        if name is None:
            return []
        epochs = tuple(e for e in self.experiment.epochs if e <= self.scale.longest_pretraining)
        options = {**self.scale.options, "dataset": name, "alpha": alpha, "algorithm": "fedseq"}
        found = []
        for seed in self.seeds:
            run = self._assignment({**options, "seed": seed}, {})
            found.append(Assignment(run.folder.with_name(f"grouping-alpha{alpha:g}-seed{seed}"), run.config, epochs))
        return found

    def _assignment(self, options: Mapping[str, Any], row: Mapping[str, Any]) -> Assignment:
        config = on_serial_engine(resolve({**options, "data_dir": self.data_dir}, lenient=True))
        asked = {name: value for name, value in options.items() if name not in row or name == "algorithm"}
        usual = resolve(asked, lenient=True).options()
        special = {name: value for name, value in row.items() if value != usual.get(name)}
        return Assignment(self.root / self.scale.name / config.dataset / run_name(config, special), config)

    def assignments(self) -> Iterator[Assignment]:
        """Everything the artefact is made of."""
        experiment = self.experiment
        for dataset in experiment.datasets:
            if experiment.centralized:
                yield from self.centralized(dataset)
            for alpha in experiment.alphas:
                if experiment.epochs:
                    yield from self.studies(dataset, alpha)
                else:
                    for row in experiment.rows.values():
                        yield from self.runs(dataset, alpha, row)


def load_experiment(name: str) -> Experiment:
    if name not in (*NAMES, *TUNING):
        raise unknown("artefact", name, (*NAMES, *TUNING))
    text = (resources.files("fedseq.paper") / "experiments" / f"{name}.yaml").read_text(encoding="utf-8")
    return Experiment(name, **yaml.safe_load(text))


def parse_only(text: str | None) -> dict[str, set[Any]]:
    """`algorithm=fedseq,alpha=0`; several values of one option are separated by `|`."""
    chosen: dict[str, set[Any]] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        name, found, values = part.partition("=")
        if not found:
            raise FedSeqError(f"--only takes option=value pairs such as algorithm=fedseq,alpha=0, not '{part}'.")
        name = name.strip().replace("-", "_")
        chosen.setdefault(name, set()).update(coerce(name, value) for value in values.split("|"))
    return chosen


def select(assignments: Sequence[Assignment], only: Mapping[str, set[Any]]) -> list[Assignment]:
    """Those with the given values. The centralized bound is always wanted: targets are shares of it."""
    federated = {one: one.config.options() for one in assignments if one.config.algorithm != "centralized"}
    for name, values in only.items():
        there = {options[name] for options in federated.values() if options.get(name) is not None}
        for value in values - there if federated else ():
            raise unknown(f"value of --only {name.replace('_', '-')}", value, map(str, there))
    chosen = {one for one, options in federated.items() if all(options.get(name) in only[name] for name in only)}
    if federated and not chosen:
        raise FedSeqError("no run has all of what --only asks for. Ask for less, or name several values with |.")
    datasets = {one.config.dataset for one in chosen}
    return [one for one in assignments if one in chosen or (one not in federated and one.config.dataset in datasets)]
