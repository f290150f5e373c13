"""How fast runs get where: final accuracy, rounds to shares of the centralized accuracy, speedup over FedAvg.

A target counts as reached at the first evaluation that is at least as good, as in the paper, and more strictly where
the mean of five evaluations in a row is. Beside rounds stand client updates, bytes and simulated time (costs.py).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedseq.report.costs import AS_RECORDED, Costs, run_costs
from fedseq.report.series import Series, Stat, data_of, make_series, stat
from fedseq.runs.reading import Run
from fedseq.simulation.clock import WhatIf

SHARES = (0.7, 0.8, 0.9)
EQUAL = (  # what a speedup over FedAvg needs to be alike
    "dataset", "alpha", "partition", "num_clients", "clients_by", "holdout", "holdout_by", "model", "trainable",
    "init_weights", "client_dropout", "deadline", "attack", "attacker_fraction",
)  # fmt: skip
WINDOW = 5  # evaluations whose mean has to reach the target, for the stricter crossing


@dataclass(frozen=True)
class Bound:
    """The accuracy that targets are shares of, and where it comes from."""

    accuracy: float
    source: str
    central: bool = False  # of a centralized model


@dataclass(frozen=True)
class Crossing:
    """Where the runs of a series reach a target: one entry per run, None for one that did not."""

    target: float
    first: tuple[int | None, ...]
    smooth: tuple[int | None, ...]  # by the mean of five evaluations
    updates: Stat | None  # up to the first crossing, of the runs that reach it
    bytes: Stat | None
    seconds: Stat | None
    epsilon: Stat | None


@dataclass(frozen=True)
class Speedup:
    """FedAvg's effort over ours; a lower bound where FedAvg did not get there in the rounds it ran."""

    factor: float
    at_least: bool

    def __str__(self) -> str:
        return f"{'> ' if self.at_least else ''}{self.factor:.1f}x"


@dataclass(frozen=True)
class ComparisonRow:
    series: Series
    final: Stat | None
    updates: float  # of clients, in all
    crossings: tuple[Crossing, ...]  # one for each share
    speedups: tuple[Speedup | None, ...]  # in rounds
    time_speedups: tuple[Speedup | None, ...]  # in simulated time

    @property
    def label(self) -> str:
        return self.series.label


def find_bound(runs: Sequence[Run], given: float | None = None) -> Bound | None:
    """The given accuracy, else the mean of the finished centralized runs among them, else the best final one.

    There are no shares of nothing: an accuracy of 0 is no bound.
    """
    if given is not None:
        return Bound(given, "as given")
    central = [run for run in runs if run.config.algorithm == "centralized"]
    measured = stat(run.final_accuracy() for run in central if run.finished)
    if measured and measured.mean > 0:
        return Bound(measured.mean, "centralized, measured", central=True)
    finals = [(run.final_accuracy() or 0.0, run.config.algorithm) for run in runs if run not in central]
    accuracy, algorithm = max(finals, default=(0.0, ""))
    if accuracy == 0:
        return None
    missing = "the centralized run is not finished" if central else "add a centralized run for the real bound"
    return Bound(accuracy, f"best of these runs, {algorithm}; {missing}")


def by_dataset(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Targets and speedups make sense within one data set only; one without a published name is told by its content."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.config.dataset, data_of(run)), []).append(run)
    names = [name for name, _ in found]
    return {
        f"{name} ({digest[:8] or 'unknown'})" if names.count(name) > 1 else name: members
        for (name, digest), members in found.items()
    }


def compare(runs: Sequence[Run], bound: Bound | None, what_if: WhatIf = AS_RECORDED) -> list[ComparisonRow]:
    """A row per series; the runs are of one data set."""
    return compare_costs(runs, bound, all_costs(runs, what_if))


def all_costs(runs: Sequence[Run], what_if: WhatIf) -> dict[Path, Costs]:
    return {run.folder: run_costs(run, what_if) for run in runs}


def compare_costs(runs: Sequence[Run], bound: Bound | None, costs: Mapping[Path, Costs]) -> list[ComparisonRow]:
    series = make_series(runs)
    targets = [share * bound.accuracy for share in SHARES] if bound else []
    crossings = [tuple(find_crossing(one, target, costs) for target in targets) for one in series]
    rows = []
    for one, own in zip(series, crossings, strict=True):
        rivals = [i for i, other in enumerate(series) if _is_baseline(other, one)]
        rounds, seconds = (
            tuple(
                best_speedup([(series[i], crossings[i][at]) for i in rivals], own[at], axis, costs)
                for at in range(len(targets))
            )
            for axis in ("rounds", "seconds")
        )
        updates = statistics.fmean(costs[run.folder].all_updates for run in one.runs)
        rows.append(ComparisonRow(one, one.final(), updates, own, rounds, seconds))
    return rows


def find_crossing(series: Series, target: float, costs: Mapping[Path, Costs]) -> Crossing:
    first = tuple(run.crossing(target) for run in series.runs)
    reached = [
        costs[run.folder].until(round_) for run, round_ in zip(series.runs, first, strict=True) if round_ is not None
    ]
    updates, moved, seconds, epsilon = zip(*reached, strict=True) if reached else ((), (), (), ())
    return Crossing(
        target, first, tuple(smooth_crossing(run.evaluations, target) for run in series.runs),
        stat(updates), stat(moved), stat(seconds), stat(epsilon),
    )  # fmt: skip


def smooth_crossing(evaluations: Sequence[tuple[int, float]], target: float, window: int = WINDOW) -> int | None:
    """First round at which the mean of the last five evaluations is at least the target."""
    for end in range(window, len(evaluations) + 1):
        values = [accuracy for _, accuracy in evaluations[end - window : end]]
        if sum(values) / window >= target:
            return evaluations[end - 1][0]
    return None


Axis = Literal["rounds", "seconds"]


def best_speedup(
    rivals: Sequence[tuple[Series, Crossing]], ours: Crossing, axis: Axis, costs: Mapping[Path, Costs]
) -> Speedup | None:
    """Over the FedAvg that gets to this target first; where none does, over the one that ends best."""
    found = [(speedup(rival, theirs, ours, axis, costs), rival) for rival, theirs in rivals]
    known = [(factor, rival.final()) for factor, rival in found if factor is not None]
    if reached := [factor for factor, _ in known if not factor.at_least]:
        return min(reached, key=lambda factor: factor.factor)
    bound, _ = max(known, key=lambda pair: pair[1].mean if pair[1] else 0.0, default=(None, None))
    return bound if bound and bound.factor > 1 else None  # that it takes more than a part of ours says nothing


def speedup(
    baseline: Series, theirs: Crossing, ours: Crossing, axis: Axis, costs: Mapping[Path, Costs]
) -> Speedup | None:
    """Of mean over mean. Where some run of FedAvg never got there, all it ran is counted: a lower bound."""
    own = stat(ours.first) if axis == "rounds" else ours.seconds
    if own is None or None in ours.first or own.mean == 0:
        return None
    efforts: list[float] = []
    for run, crossing in zip(baseline.runs, theirs.first, strict=True):
        cost = costs[run.folder]
        if not run.rounds or (axis == "seconds" and not cost.seconds):
            return None
        efforts.append(
            (crossing or run.rounds) if axis == "rounds" else cost.until(crossing or run.rounds).seconds or 0.0
        )
    return Speedup(sum(efforts) / len(efforts) / own.mean, None in theirs.first)


def _is_baseline(other: Series, series: Series) -> bool:
    """FedAvg, however tuned, on the same data and model, dealt in the same way, under the same troubles."""
    same = all(getattr(other.config, name) == getattr(series.config, name) for name in EQUAL)
    same = same and other.config.private == series.config.private
    return same and other.config.algorithm == "fedavg" and not series.central


def crossing_text(crossings: Sequence[int | None], runs: Sequence[Run]) -> str:
    """A target never reached is shown as more rounds than were run, not as a number."""
    reached = stat(crossings)
    if reached is None:
        return f"> {min((run.rounds for run in runs), default=0)}"
    missed = list(crossings).count(None)
    return reached.text(lambda value: f"{value:.0f}") + (f" ({missed} of {len(crossings)} never)" if missed else "")
