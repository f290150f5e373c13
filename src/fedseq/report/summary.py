"""What the report page shows, as plain data: everything is computed here, the page only draws it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedseq.configfile import to_yaml
from fedseq.report.convergence import (
    SHARES,
    Bound,
    Row,
    all_costs,
    by_dataset,
    compare_costs,
    crossing_text,
    find_bound,
)
from fedseq.report.costs import Costs, Devices, human_bytes, human_seconds
from fedseq.report.reading import Broken, Details, broken, read_details, readable
from fedseq.report.reproduce import command
from fedseq.report.series import Series, Stat, stat
from fedseq.results import Run
from fedseq.version import VERSION

POINTS = 600  # of a curve; more can't be seen
SNAPSHOTS = 80  # rounds at which the accuracy of each class is shown
LARGEST_MAP = 250  # rows of a heat map


def summarise(
    found: Sequence[Run | Broken], devices: Devices | None = None, bound: float | None = None, live: bool = False
) -> dict[str, Any]:
    devices = devices or Devices()
    datasets = by_dataset(readable(found))
    groups = [_dataset(name, runs, devices, find_bound(runs, bound)) for name, runs in datasets.items()]
    return {
        "version": VERSION,
        "live": live,
        "devices": devices.describe(),
        "datasets": groups,
        "broken": [{"folder": str(one.folder), "reason": one.reason} for one in broken(found)],
    }


def _dataset(name: str, runs: Sequence[Run], devices: Devices, bound: Bound | None) -> dict[str, Any]:
    costs = all_costs(runs, devices)
    rows = compare_costs(runs, bound, costs)
    return {
        "name": name,
        "bound": asdict(bound) if bound else None,
        "targets": [{"share": share, "accuracy": share * bound.accuracy} for share in SHARES] if bound else [],
        "headlines": headlines(rows),
        "series": [_series(row, costs) for row in rows],
        "runs": [_run(run, row.label) for row in rows for run in row.series.runs],
    }


def headlines(rows: Sequence[Row]) -> dict[str, str]:
    """One for all rows, and one for those of each alpha."""
    alphas = dict.fromkeys(f"{row.series.config.alpha:g}" for row in rows if not row.series.central)
    by_alpha = {alpha: [row for row in rows if f"{row.series.config.alpha:g}" == alpha] for alpha in alphas}
    return {"all": headline(rows), **{alpha: headline(members) for alpha, members in by_alpha.items()}}


def headline(rows: Sequence[Row]) -> str:
    """The sentence a reader takes home: who is the soonest at 80 %, and how much sooner than FedAvg."""
    at = SHARES.index(0.8)
    ahead = [(row.speedups[at], row) for row in rows if row.crossings and row.speedups[at]]
    best = max(ahead, key=lambda pair: pair[0].factor if pair[0] else 0.0, default=None)
    if best and best[0] and best[0].factor > 1 and best[1].series.config.algorithm != "fedavg":
        rounds = crossing_text(best[1].crossings[at].first, best[1].series.runs)
        sooner = f"{'more than ' if best[0].at_least else ''}{best[0].factor:.1f} times sooner"
        time = best[1].time_speedups[at]
        clock = f" In simulated time the factor is {time}." if time else ""
        return f"{best[1].label} reaches 80 % of the bound in {rounds} rounds, {sooner} than FedAvg.{clock}"
    finals = [row for row in rows if row.final and not row.series.central]
    if not finals:
        return "Nothing has been evaluated yet."
    top = max(finals, key=lambda row: row.final.mean if row.final else 0.0)
    return f"Best final accuracy: {top.label}, {top.final.mean if top.final else 0:.2%}."


def _series(row: Row, costs: Mapping[Path, Costs]) -> dict[str, Any]:
    series = row.series
    return {
        "label": series.label,
        "algorithm": series.config.algorithm,
        "central": series.central,
        "alpha": None if series.central else f"{series.config.alpha:g}",
        "finished": series.finished,
        "seeds": list(series.seeds),
        "curve": None if series.central else _curve(series, [costs[run.folder] for run in series.runs]),
        "cells": _cells(row),
        "costs": [] if series.central or not row.crossings else _costs(row),
    }


def _cells(row: Row) -> list[dict[str, Any]]:
    """The row of the convergence table: what is shown, and what it is sorted by."""
    series = row.series
    nothing = _cell("-", None)
    cells = [
        _cell(series.label + ("" if series.finished else " (unfinished)"), series.label),
        _stat(row.final, lambda value: f"{value:.2%}"),
        _cell(series.rounds_text() + (" epochs" if series.central else ""), max(run.rounds for run in series.runs)),
        _cell(str(len(series.runs)), len(series.runs)),
    ]
    for crossing, factor in zip(row.crossings, row.speedups, strict=True):
        if series.central:
            cells += [nothing] * 3
            continue
        for values in (crossing.first, crossing.smooth):
            reached = stat(values)
            cells.append(_cell(crossing_text(values, series.runs), reached.mean if reached else None))
        cells.append(_cell(str(factor), factor.factor) if factor else nothing)
    return cells


def _costs(row: Row, share: float = 0.8) -> list[dict[str, Any]]:
    at = SHARES.index(share)
    crossing, factor = row.crossings[at], row.time_speedups[at]
    reached = stat(crossing.first)
    return [
        _cell(row.label, row.label),
        _cell(crossing_text(crossing.first, row.series.runs), reached.mean if reached else None),
        _stat(crossing.updates, lambda value: f"{value:,.0f}"),
        _stat(crossing.bytes, human_bytes, spread=False),
        _stat(crossing.seconds, human_seconds, spread=False),
        _cell(str(factor), factor.factor) if factor else _cell("-", None),
    ]


def _cell(text: str, value: float | str | None) -> dict[str, Any]:
    return {"text": text, "sort": value}


def _stat(found: Stat | None, show: Any, spread: bool = True) -> dict[str, Any]:
    if found is None:
        return _cell("-", None)
    return _cell(found.text(show) if spread else show(found.mean), found.mean)


def _curve(series: Series, costs: Sequence[Costs]) -> dict[str, list[Any]]:
    """Means over the seeds at the rounds that all of them evaluated, and their range."""
    lines = [{line["round"]: line for line in run.metrics if line.get("accuracy") is not None} for run in series.runs]
    rounds = sorted(set.intersection(*(set(by_round) for by_round in lines)))
    kept = thin([_mean([by_round[r]["accuracy"] for by_round in lines]) for r in rounds])
    rounds = [rounds[i] for i in kept]
    points = [[cost.until(r) for cost in costs] for r in rounds]
    values = [[by_round[r] for by_round in lines] for r in rounds]
    return {
        "rounds": rounds,
        "accuracy": [_mean([line["accuracy"] for line in at]) for at in values],
        "low": [min(line["accuracy"] for line in at) for at in values] if len(lines) > 1 else [],
        "high": [max(line["accuracy"] for line in at) for at in values] if len(lines) > 1 else [],
        "loss": [_mean([line.get("loss") for line in at]) for at in values],
        "train_loss": [_mean([line.get("train_loss") for line in at]) for at in values],
        "updates": [_mean([cost[0] for cost in at]) for at in points],
        "bytes": [_mean([cost[1] for cost in at]) for at in points],
        "seconds": [_mean([cost[2] for cost in at]) for at in points],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def thin(values: Sequence[float | None], limit: int = POINTS) -> list[int]:
    """Positions worth drawing: of each stretch its lowest and highest value, and both ends."""
    if len(values) <= limit:
        return list(range(len(values)))
    stretches = limit // 2
    kept = {0, len(values) - 1}
    for i in range(stretches):
        stretch = range(i * len(values) // stretches, (i + 1) * len(values) // stretches)
        kept |= {min(stretch, key=lambda at: values[at] or 0.0), max(stretch, key=lambda at: values[at] or 0.0)}
    return sorted(kept)


def _run(run: Run, label: str) -> dict[str, Any]:
    details = read_details(run.folder)
    return {
        "folder": str(run.folder),
        "label": f"{label}, seed {run.config.seed}",
        "series": label,
        "state": "finished" if run.finished else f"unfinished: {run.rounds} of {run.config.rounds} rounds",
        "superclients": composition(details),
        "groups": len(details.superclients or ()),
        "per_class": _per_class(run),
        "skipped": skipped(run),
        "seconds": time_split(details),
        "command": command(run.config) or "made in Python with data of its own: no command repeats it",
        "config": to_yaml(run.config),
        "environment": details.environment,
    }


def composition(details: Details) -> list[list[int]] | None:
    """Examples of each class in each superclient."""
    counts = details.label_counts
    if not counts or not details.superclients:
        return None
    if any(not 0 <= client < len(counts) for group in details.superclients for client in group):
        return None
    groups = [[counts[client] for client in group] for group in details.superclients[:LARGEST_MAP]]
    return [[sum(column) for column in zip(*group, strict=True)] for group in groups]


def _per_class(run: Run) -> dict[str, Any] | None:
    lines = [line for line in run.metrics if isinstance(line.get("per_class_accuracy"), list)]
    if not lines:
        return None
    chosen = [lines[i * (len(lines) - 1) // max(1, SNAPSHOTS - 1)] for i in range(SNAPSHOTS)]
    lines = chosen if len(lines) > SNAPSHOTS else lines
    return {"rounds": [line["round"] for line in lines], "values": [line["per_class_accuracy"] for line in lines]}


def skipped(run: Run) -> list[dict[str, Any]]:
    """Hops that were left out and updates that were refused, by reason."""
    found: dict[str, dict[str, Any]] = {}
    for line in run.metrics:
        for kind in ("skipped", "rejected"):
            for hop in line.get(kind) or ():
                reason = str(hop.get("reason", kind)) if isinstance(hop, dict) else kind
                client = hop.get("client") if isinstance(hop, dict) else None
                entry = found.setdefault(reason, {"reason": reason, "count": 0, "rounds": [], "clients": []})
                entry["count"] += 1
                for name, value in (("rounds", line["round"]), ("clients", client)):
                    if value is not None and value not in entry[name]:
                        entry[name].append(value)
    return sorted(found.values(), key=lambda entry: -entry["count"])


def time_split(details: Details) -> dict[str, float]:
    """Seconds by what they went to."""
    totals: dict[str, float] = {}
    for line in details.timing:
        for name, seconds in line.items():
            if name != "round":
                totals[name] = totals.get(name, 0.0) + seconds
    return totals
