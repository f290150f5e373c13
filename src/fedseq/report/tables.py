"""Runs as tables: how they converge, what that costs, at one budget, and which options of a sweep did best.

A budget is a number of rounds, and the simulated time of the run that takes the longest for them. Others may have run
more rounds by then, which is what they are allowed; a series that had ended before is told as such.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedseq.options.option import brief
from fedseq.report.convergence import SHARES, WINDOW, Bound, ComparisonRow, crossing_text
from fedseq.report.costs import Costs, human_bytes, human_seconds
from fedseq.report.formats import TextTable, to_csv
from fedseq.report.series import Series, Stat, make_series, stat
from fedseq.runs.reading import Broken, Run

FAIRNESS = "client_worst_decile"
SHOWN = 10  # combinations of a sweep's options


def comparison_table(
    rows: Sequence[ComparisonRow],
    bound: Bound | None,
    broken: Sequence[Broken] = (),
    diverged: Collection[Path] = (),
) -> TextTable:
    """Rounds to the targets and speedups. `diverged` are the folders of runs that did, of which nothing is told."""
    seeds = max((len(row.series.runs) for row in rows), default=1) > 1
    clients = any(row.series.final_of("client_mean") for row in rows)
    private = is_private(rows)
    columns = ["algorithm", *(["seeds"] if seeds else []), "rounds", "final accuracy"]
    columns += ["mean over clients", "worst decile"] if clients else []
    columns += ["epsilon"] if private else []
    columns.append("client updates")
    if bound:
        columns += [f"to {share:.0%} = {share * bound.accuracy:.1%}" for share in SHARES]
        columns.append("speedup at " + " / ".join(f"{share:.0%}" for share in SHARES))
    lines = []
    for row in rows:
        if any(run.folder in diverged for run in row.series.runs):
            cells = _diverged_cells(row, seeds)
            lines.append(cells + ["-"] * (len(columns) - len(cells)))
        else:
            lines.append(_cells(row, seeds, clients, private))
    for folder in broken:
        cells = [str(folder.folder), *([""] if seeds else []), "unreadable"]
        lines.append(cells + [""] * (len(columns) - len(cells)))
    caption = f"targets are shares of {bound.accuracy:.2%} ({bound.source})" if bound else ""
    return TextTable(columns, lines, caption=caption)


def is_private(rows: Sequence[ComparisonRow]) -> bool:
    return any(row.series.epsilon() for row in rows)


def _diverged_cells(row: ComparisonRow, seeds: bool) -> list[str]:
    label = row.label.removesuffix(" (unfinished)")  # as it would be after any number of further rounds
    return [label, *([str(len(row.series.runs))] if seeds else []), row.series.rounds_text(), "diverged"]


def _cells(row: ComparisonRow, seeds: bool, clients: bool, private: bool) -> list[str]:
    series = row.series
    cells = [
        series.title,
        *([str(len(series.runs))] if seeds else []),
        series.rounds_text(),
        _percent(row.final),
        *(_percent(series.final_of(name)) for name in ("client_mean", "client_worst_decile") if clients),
        *([epsilon_text(series.epsilon())] if private else []),
        "-" if series.central else f"{row.updates:,.0f}",
        *("-" if series.central else crossing_text(crossing.first, series.runs) for crossing in row.crossings),
    ]
    if row.crossings:
        cells.append("-" if series.central else " / ".join(str(factor or "-") for factor in row.speedups))
    return cells


def _percent(found: Stat | None) -> str:
    return found.text(lambda value: f"{value:.2%}") if found else "-"


def epsilon_text(found: Stat | None) -> str:
    return found.text(lambda value: f"{value:.2f}") if found else "-"


def cost_table(rows: Sequence[ComparisonRow], clients: str, share: float = 0.8) -> TextTable:
    """The second axis: what the same target costs in updates, bytes, time and privacy, and the stricter crossing."""
    at, private = SHARES.index(share), is_private(rows)
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    columns = ["algorithm", f"mean of {WINDOW} evaluations to {shares}", f"client updates to {share:.0%}", "bytes",
               "simulated time", "speedup in time", *(["epsilon"] if private else [])]  # fmt: skip
    lines = []
    for row in rows:
        if row.series.central or not row.crossings:
            continue
        crossing = row.crossings[at]
        lines.append([
            row.label,
            " / ".join(crossing_text(one.smooth, row.series.runs) for one in row.crossings),
            crossing.updates.text(lambda value: f"{value:,.0f}") if crossing.updates else "-",
            human_bytes(crossing.bytes.mean) if crossing.bytes else "-",
            human_seconds(crossing.seconds.mean) if crossing.seconds else "-",
            str(row.time_speedups[at] or "-"),
            *([epsilon_text(crossing.epsilon)] if private else []),
        ])  # fmt: skip
    return TextTable(columns, lines, caption=f"simulated time: {clients}")


def comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """A line for each series and target, numbers in full; a series without targets has one line."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        series, crossings = row.series, zip(SHARES, row.crossings, row.speedups, row.time_speedups, strict=False)
        final = row.final
        head = {
            "dataset": series.config.dataset, "algorithm": series.config.algorithm, "label": series.label,
            "seeds": len(series.runs), "finished": str(series.finished).lower(),
            "rounds": max(run.rounds for run in series.runs),
            "final_accuracy": final.mean if final else None, "final_accuracy_std": final.std if final else None,
        }  # fmt: skip
        for name in ("client_mean", "client_worst_decile"):
            head |= {name: found.mean} if (found := series.final_of(name)) else {}
        head |= {"epsilon": spent.mean, "epsilon_std": spent.std} if (spent := series.epsilon()) else {}
        if not row.crossings:
            lines.append(head)
        for share, crossing, speedup, time_speedup in crossings:
            first = stat(crossing.first)
            means = {"round": first, "round_mean_of_5": stat(crossing.smooth), "client_updates": crossing.updates,
                     "bytes": crossing.bytes, "simulated_seconds": crossing.seconds}  # fmt: skip
            lines.append({
                **head, "share": share, "target": crossing.target, "runs_there": first.count if first else 0,
                **{name: found.mean if found else None for name, found in means.items()},
                "speedup": speedup.factor if speedup else None,
                "speedup_at_least": str(speedup.at_least).lower() if speedup else None,
                "time_speedup": time_speedup.factor if time_speedup else None,
                **({"target_epsilon": crossing.epsilon.mean} if crossing.epsilon else {}),
            })  # fmt: skip
    names = list(dict.fromkeys(name for line in lines for name in line))
    return to_csv(names, [[line.get(name) for name in names] for line in lines])


def budget_table(runs: Sequence[Run], costs: Mapping[Path, Costs], round_: int) -> TextTable:
    """A row per series; of each run the last evaluation within the budget counts."""
    series = [one for one in make_series(runs) if not one.central]
    taken = {one.label: stat(_seconds_at(run, costs, round_) for run in one.runs) for one in series}
    every = (_seconds_at(run, costs, round_) for one in series for run in one.runs)
    longest = max((seconds for seconds in every if seconds is not None), default=None)
    fair = any(run.final(FAIRNESS) is not None for run in runs)
    columns = [
        "algorithm",
        "seeds",
        f"accuracy at round {round_}",
        *(["worst decile"] if fair else []),
        "simulated time",
    ]
    if longest is not None:
        columns += [f"accuracy after {human_seconds(longest)}", *(["worst decile"] if fair else []), "rounds by then"]
    rows = []
    for one in series:
        at_round = [_last(run, round_) if run.rounds >= round_ else None for run in one.runs]
        cells = [one.label, str(len(one.runs)), *_shares(at_round, fair), _text(taken[one.label], human_seconds)]
        if longest is not None:
            ends = [_round_after(run, costs, longest) for run in one.runs]
            at_time = [_last(run, end) for run, end in zip(one.runs, ends, strict=True)]
            cells += [*_shares(at_time, fair), _rounds(one, ends)]
        rows.append(cells)
    return TextTable(columns, rows)


def _seconds_at(run: Run, costs: Mapping[Path, Costs], round_: int) -> float | None:
    """The clock after a round; None where the run ended before, or was published without that round."""
    known = costs[run.folder]
    return known.until(round_).seconds if round_ in known.rounds else None


def _round_after(run: Run, costs: Mapping[Path, Costs], seconds: float) -> int:
    """The last round that had ended by then."""
    known = costs[run.folder]
    clocks = ((number, known.until(number).seconds) for number in known.rounds)
    return max((number for number, clock in clocks if clock is not None and clock <= seconds), default=0)


def _last(run: Run, round_: int) -> Mapping[str, float] | None:
    """The last evaluation up to a round."""
    lines = [line for line in run.metrics if line["round"] <= round_ and line.get("accuracy") is not None]
    return lines[-1] if lines else None


def _shares(lines: Sequence[Mapping[str, float] | None], fair: bool) -> list[str]:
    names = ["accuracy", *([FAIRNESS] if fair else [])]
    return [_text(stat(line.get(name) for line in lines if line), lambda value: f"{value:.1%}") for name in names]


def _text(found: Stat | None, show: Callable[[float], str]) -> str:
    return found.text(show) if found else "-"


def _rounds(series: Series, ends: Sequence[int]) -> str:
    reached = stat(float(end) for end in ends)
    ended = any(end == run.rounds for end, run in zip(ends, series.runs, strict=True))
    return _text(reached, lambda value: f"{value:.0f}") + (", its last" if ended else "")


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
        rows.append([*map(value_text, point.values), _final(point), seeds])
    shown = f"the best {SHOWN} of {len(points)}" if len(points) > SHOWN else "best first"
    columns = [*(name.replace("_", " ") for name in varied), "final accuracy", "seeds"]
    return TextTable(columns, rows, caption=f"final accuracy, {shown}", left=len(varied))


def _final(point: Point) -> str:
    if point.diverged:
        return "diverged" if point.diverged == point.runs else f"{point.diverged} of {point.runs} diverged"
    final = point.final.text(lambda value: f"{value:.2%}") if point.final else "-"
    return final + ("" if point.finished else " (unfinished)")


def value_text(value: Any) -> str:
    return "-" if value is None else brief(value)
