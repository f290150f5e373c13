"""Which values of the options did best: runs of a sweep, by what was varied."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedseq.options.option import brief
from fedseq.report.formats import TextTable
from fedseq.report.series import Stat, stat
from fedseq.runs.reading import Run

SHOWN = 10


@dataclass(frozen=True)
class Point:
    """A combination of values, and the final accuracy of its runs over the seeds."""

    values: tuple[Any, ...]  # None for an option that is not used
    final: Stat | None  # None too where a run diverged: what it was before says nothing for these values
    finished: bool
    runs: int = 1
    diverged: int = 0  # how many of them


def grid_points(runs: Iterable[tuple[tuple[Any, ...], Run]], diverged: Collection[Path] = ()) -> list[Point]:
    """Best first; what has no accuracy comes last. `diverged` are the folders of runs that did."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for values, run in runs:
        groups.setdefault(values, []).append(run)
    points = []
    for values, members in groups.items():
        gone = sum(run.folder in diverged for run in members)
        final = None if gone else stat(run.final_accuracy() for run in members)
        points.append(Point(values, final, all(run.finished for run in members), len(members), gone))
    return sorted(points, key=lambda point: -1.0 if point.final is None else point.final.mean, reverse=True)


def best_table(points: Sequence[Point], varied: Sequence[str]) -> TextTable:
    rows = []
    for point in points[:SHOWN]:
        seeds = str(point.final.count if point.final else 0)
        rows.append([*map(_value, point.values), _final(point), seeds])
    shown = f"the best {SHOWN} of {len(points)}" if len(points) > SHOWN else "best first"
    columns = [*(name.replace("_", " ") for name in varied), "final accuracy", "seeds"]
    return TextTable(columns, rows, caption=f"final accuracy, {shown}", left=len(varied))


def _final(point: Point) -> str:
    if point.diverged:
        return "diverged" if point.diverged == point.runs else f"{point.diverged} of {point.runs} diverged"
    final = point.final.text(lambda value: f"{value:.2%}") if point.final else "-"
    return final + ("" if point.finished else " (unfinished)")


def _value(value: Any) -> str:
    return "-" if value is None else brief(value)


def heat_map(points: Sequence[Point], varied: Sequence[str], path: Path) -> Path:
    """Final accuracy over two options: a column for each value of the first, a row for each of the second."""
    import numpy as np
    from matplotlib import pyplot as plt

    from fedseq.report.figures import save

    columns, rows = (_in_order({point.values[axis] for point in points}) for axis in (0, 1))
    cells = np.full((len(rows), len(columns)), np.nan)
    for point in points:
        if point.final:
            cells[rows.index(point.values[1]), columns.index(point.values[0])] = 100 * point.final.mean
    room = max(0.9, 0.09 * max(len(_value(value)) for value in columns) + 0.2)  # for the names below the columns
    figure, axes = plt.subplots(figsize=(2.4 + room * len(columns), 1.6 + 0.5 * len(rows)), layout="constrained")
    image = axes.imshow(cells, cmap="cividis", aspect="auto")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        text = "-" if np.isnan(value) else f"{value:.1f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if value < middle else "black")
    axes.set_xticks(range(len(columns)), [_value(value) for value in columns])
    axes.set_yticks(range(len(rows)), [_value(value) for value in rows])
    axes.set(xlabel=varied[0].replace("_", " "), ylabel=varied[1].replace("_", " "))
    figure.colorbar(image, label="final accuracy (%)")
    return save(figure, path)


def _in_order(values: set[Any]) -> list[Any]:
    """Numbers by size, names by the alphabet, what is absent first."""
    return sorted(values, key=lambda value: (value is not None, value if value is not None else 0))
