"""From an artefact of the paper to the tasks it is made of. Artefacts share runs: a folder's name tells what it is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from fedseq.config import resolve
from fedseq.configfile import coerce, from_mapping
from fedseq.errors import FedSeqError, unknown
from fedseq.paper.scales import Scale
from fedseq.paper.tasks import Task, on_serial_engine

NAMES = ("table1", "table2", "table3", "table4", "fig-curves", "fig-pretraining", "fig-pca", "fig-violins", "fig-es")


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
class Plan:
    """An experiment at a scale, in a folder."""

    experiment: Experiment
    scale: Scale
    root: Path
    data_dir: str | None = None
    absent: Mapping[str, str] = field(default_factory=dict)  # our data sets that can't be read, and why

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

    def runs(self, dataset: str, alpha: float, row: Mapping[str, Any]) -> list[Task]:
        """A run for each seed; none where the data set is not run."""
        name = self.ours(dataset)
        if name is None:
            return []
        rounds = self.scale.rounds[name] // row.get("superclient_epochs", 1)
        options = {**self.scale.options, "dataset": name, "alpha": alpha, "rounds": rounds, **row}
        return [self._task({**options, "seed": seed}, row) for seed in self.seeds]

    def centralized(self, dataset: str) -> list[Task]:
        name = self.ours(dataset)
        options = {"dataset": name, "algorithm": "centralized", "rounds": self.scale.centralized_rounds}
        return [] if name is None else [self._task({**self.scale.options, **options, "seed": self.seeds[0]}, {})]

    def studies(self, dataset: str, alpha: float) -> list[Task]:
        name = self.ours(dataset)
        if name is None:
            return []
        epochs = tuple(e for e in self.experiment.epochs if e <= self.scale.longest_pretraining)
        options = {**self.scale.options, "dataset": name, "alpha": alpha, "algorithm": "fedseq"}
        tasks = [self._task({**options, "seed": seed}, {}) for seed in self.seeds]
        return [Task(task.folder.with_name(f"grouping-alpha{alpha:g}-seed{task.config.seed}"), task.config, epochs)
                for task in tasks]  # fmt: skip

    def _task(self, options: Mapping[str, Any], row: Mapping[str, Any]) -> Task:
        config = on_serial_engine(resolve(from_mapping({**options, "data_dir": self.data_dir})))
        special = [f"{value}" if isinstance(value, str) else f"{key.replace('_', '-')}{value}"
                   for key, value in row.items() if key != "algorithm"]  # fmt: skip
        dealt = [] if config.algorithm == "centralized" else [f"alpha{config.alpha:g}"]
        name = "-".join([config.algorithm, *special, *dealt, f"seed{config.seed}"])
        return Task(self.root / self.scale.name / config.dataset / name, config)

    def tasks(self) -> Iterator[Task]:
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
    if name not in NAMES:
        raise unknown("artefact", name, NAMES)
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
        chosen[name] = {coerce(name, value) for value in values.split("|")}
    return chosen


def selected(task: Task, only: Mapping[str, set[Any]]) -> bool:
    """The centralized bound is always wanted: targets are shares of it."""
    config = task.config
    names = ("dataset",) if config.algorithm == "centralized" else tuple(only)
    return all(getattr(config, name) in only[name] for name in names if name in only)
