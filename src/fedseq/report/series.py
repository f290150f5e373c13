"""Runs that differ only in their seed are one series: one row of a table, one curve.

A series is labelled, and a run repeated, by the options that differ from the defaults.
"""

import json
import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config, role_of
from fedseq.options.config_files import own_text
from fedseq.options.datasets import CATALOG, OWN
from fedseq.options.option import Role, brief, flag
from fedseq.options.resolve import resolve
from fedseq.runs.reading import Run

UNFINISHED = "(unfinished)"


@dataclass(frozen=True)
class Stat:
    """Mean and standard deviation of the sample; one value has none."""

    mean: float
    std: float | None
    count: int

    def text(self, show: Callable[[float], str]) -> str:
        return show(self.mean) + ("" if self.std is None else f" ± {show(self.std)}")


def stat(values: Iterable[float | None]) -> Stat | None:
    given = [value for value in values if value is not None]
    if not given:
        return None
    return Stat(statistics.fmean(given), statistics.stdev(given) if len(given) > 1 else None, len(given))


@dataclass(frozen=True)
class Series:
    label: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def central(self) -> bool:
        return self.config.algorithm == "centralized"

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.config.seed for run in self.runs)

    def final(self) -> Stat | None:
        return stat(run.final_accuracy() for run in self.runs)

    def final_of(self, name: str) -> Stat | None:
        """As `final`, of another value in the metrics."""
        return stat(run.final(name) for run in self.runs)

    def epsilon(self) -> Stat | None:
        """What was spent by the end; none where some run promises nothing."""
        spent = [run.metrics[-1].get("epsilon") if run.metrics else None for run in self.runs]
        return None if None in spent else stat(spent)

    def rounds_text(self) -> str:
        """Rounds really run, and of how many if some are missing."""
        ran = sorted({run.rounds for run in self.runs})
        text = str(ran[0]) if len(ran) == 1 else f"{ran[0]}-{ran[-1]}"
        planned = max(run.config.rounds or 0 for run in self.runs)
        return (text if self.finished else f"{text} of {planned}") + (" epochs" if self.central else "")

    @property
    def title(self) -> str:
        return self.label if self.finished or self.label.endswith(UNFINISHED) else f"{self.label} {UNFINISHED}"


def mean_curve(runs: Sequence[Run]) -> tuple[list[int], list[float], list[float]]:
    """The rounds that all of the runs evaluated, the mean accuracy there and its standard deviation."""
    by_seed = [dict(run.evaluations) for run in runs]
    rounds = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
    found = [stat(values[round_] for values in by_seed) for round_ in rounds]
    return rounds, [one.mean for one in found if one], [one.std or 0.0 for one in found if one]


def make_series(runs: Sequence[Run]) -> list[Series]:
    """In the order of first appearance. The same seed twice is two series: nothing is averaged with itself.

    Nor are seeds that have just begun with those that are done: they are a series of their own.
    """
    groups: dict[tuple[Any, int], list[Run]] = {}
    for run in runs:
        options = tuple((name, value) for name, value in run.config.options().items() if _tells_runs_apart(name))
        key = (options, _objects(run))
        copy = 0
        while any(other.config.seed == run.config.seed for other in groups.get((key, copy), ())):
            copy += 1
        groups.setdefault((key, copy), []).append(run)
    found = []
    for label, group in zip(labels([group[0] for group in groups.values()]), groups.values(), strict=True):
        members = sorted(group, key=lambda run: run.config.seed)
        done, others = (tuple(run for run in members if run.finished == state) for state in (True, False))
        found += [Series(label, done)] if done else []
        found += [Series(f"{label} {UNFINISHED}" if done else label, others)] if others else []
    return found


def data_of(run: Run) -> str:
    """A digest of data that has no published name, else nothing."""
    return "" if run.config.dataset in CATALOG else str(run.details.identity.get("dataset", ""))


def _objects(run: Run) -> str:
    """What runs made in Python are made of beside their options; parameters that are not trained go by the seed."""
    if run.config.dataset != OWN:
        return data_of(run)
    found = run.details.identity
    model = found.get("model")
    told = {name: value for name, value in model.items() if name != "frozen"} if isinstance(model, dict) else model
    return json.dumps({**found, "model": told}, sort_keys=True)


def labels(runs: Sequence[Run]) -> list[str]:
    """The algorithm's name; of several runs of it, what is special about each; if that is nothing, the folder."""
    names = [_label(run, _twins(run, runs), brief=True) for run in runs]
    names = [_label(run, _twins(run, runs), brief=False) if names.count(name) > 1 else name
             for run, name in zip(runs, names, strict=True)]  # fmt: skip
    return [f"{run.config.algorithm} ({run.folder})" if names.count(name) > 1 else name
            for run, name in zip(runs, names, strict=True)]  # fmt: skip


def _twins(run: Run, runs: Sequence[Run]) -> list[Run]:
    return [other for other in runs if other.config.algorithm == run.config.algorithm]


def _label(run: Run, twins: Sequence[Run], brief: bool) -> str:
    """The options in which the twins differ; in brief, without those that are as usual, or say how long a run is."""
    shown = []
    own = run.config.options()
    base = defaults(run.config, "grouping") | {
        "grouping": defaults(run.config).get("grouping")
    }  # a metric goes with it
    used = [twin.config.options() for twin in twins]
    for name, value in own.items():
        values = [options.get(name) for options in used]
        usual = value == base.get(name) or 2 * values.count(value) > len(values) or role_of(name) is Role.EXTENT
        if _tells_runs_apart(name) and len(set(values)) > 1 and not (brief and usual and name not in ALWAYS_SHOWN):
            shown.append(_option(name, value))
    return " ".join([run.config.algorithm, *([f"({', '.join(shown)})"] if shown else [])])


def _tells_runs_apart(name: str) -> bool:
    """Runs that differ in their seed alone are repetitions, and where they are computed does not matter."""
    return name != "seed" and role_of(name) is not Role.PLACE


ALWAYS_SHOWN = ("dataset", "alpha", "grouping")
BY_VALUE = ("dataset", "grouping", "grouping_metric", "approximator", "partition", "model")  # the value says what it is


def _option(name: str, value: Any) -> str:
    if name in BY_VALUE:
        return f"no {name}" if value is None else str(value)
    short = {"superclient_epochs": "E_S"}.get(name, name.replace("_", " "))
    return f"{short} {brief(value)}"


FIRST = ("dataset", "algorithm", "alpha", "seed", "rounds")


def defaults(config: Config, *beside: str) -> dict[str, Any]:
    """The options of a run for which nothing but data set, algorithm, alpha and those beside had been asked for."""
    asked = {name: getattr(config, name) for name in ("dataset", "algorithm", "alpha", *beside)}
    try:
        return resolve(asked, lenient=True).options()
    except FedSeqError:  # made in Python with names of its own
        return {}


def command(config: Config) -> str | None:
    """It names the options that differ from the defaults of the data set and algorithm, and change what comes out.

    None for a run made in Python, which no command can repeat.
    """
    if config.dataset == "own":
        return None
    base, used = defaults(config), config.options()
    differing = [name for name, value in used.items() if value not in (None, base.get(name))]
    names = [*FIRST, *(name for name in differing if name not in FIRST and role_of(name) is not Role.PLACE)]
    words = ["fedseq", "run"]
    for name in names:
        value = used.get(name)
        if value is not None:
            words += ["--rule", f"{name}={own_text(value)}"] if "." in name else [flag(name), _text(value)]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
