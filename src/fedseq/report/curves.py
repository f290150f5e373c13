"""The curve of a series, as the page draws it: means over the seeds, thinned to what can be seen."""

from collections.abc import Sequence
from typing import Any

from fedseq.report.convergence import WINDOW
from fedseq.report.costs import Costs, Spent
from fedseq.report.series import Series

POINTS = 600  # of a curve; more cannot be seen
MEASURES = ("accuracy", "loss", "train_loss")


def make_curve(series: Series, costs: Sequence[Costs]) -> dict[str, Any]:
    """Means over the seeds at the rounds that all of them evaluated, and their range."""
    lines = [{line["round"]: line for line in run.metrics if line.get("accuracy") is not None} for run in series.runs]
    rounds = sorted(set.intersection(*(set(by_round) for by_round in lines)))
    measured = {name: [_mean([by_round[r].get(name) for by_round in lines]) for r in rounds] for name in MEASURES}
    kept = thin(measured["accuracy"])
    evaluated = [[by_round[rounds[i]]["accuracy"] for by_round in lines] for i in kept]
    efforts = [[cost.until(rounds[i]) for cost in costs] for i in kept]
    smooth = {name: running_mean(values) for name, values in measured.items()}
    return {
        "rounds": [rounds[i] for i in kept],
        **{name: [values[i] for i in kept] for name, values in measured.items()},
        "smooth": {name: [values[i] for i in kept] for name, values in smooth.items()},
        "low": list(map(min, evaluated)) if len(lines) > 1 else [],
        "high": list(map(max, evaluated)) if len(lines) > 1 else [],
        **{name: [_mean([getattr(spent, name) for spent in at]) for at in efforts] for name in Spent._fields},
    }


def running_mean(values: Sequence[float | None]) -> list[float | None]:
    """Over five evaluations (fewer at the start); none where one of them is missing."""
    return [_mean(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


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
