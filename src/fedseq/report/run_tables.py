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
CLIENT_MEASURES = ("client_mean", FAIRNESS)
SHOWN = 10  # combinations of a sweep's options


@dataclass(frozen=True)
class Shown:
    text: str = "-"
    value: float | str | None = None  # in full; what a page sorts by


def cells_of(row: ComparisonRow) -> dict[str, Shown]:
    """All that the tables, the csv and the page tell of a series, by name; of targets as "first 0.8"."""
    series, runs = row.series, row.series.runs
    found = {
        "title": Shown(series.title, series.label),
        "label": Shown(row.label, row.label),
        "seeds": Shown(str(len(runs)), len(runs)),
        "rounds": Shown(series.rounds_text(), max(run.rounds for run in runs)),
        "final": _mean(row.final, "{:.2%}".format),
        **{name: _mean(series.final_of(name), "{:.2%}".format) for name in CLIENT_MEASURES},
        "epsilon": _mean(series.epsilon(), "{:.2f}".format),
        "updates": Shown() if series.central else Shown(f"{row.updates:,.0f}", row.updates),
    }
    for at, crossing in enumerate(row.crossings):
        factor, time_factor = row.speedups[at], row.time_speedups[at]
        told = {
            "first": _reached(crossing.first, runs),
            "smooth": _reached(crossing.smooth, runs),
            "speedup": Shown(str(factor), factor.factor) if factor else Shown(),
            "updates": _mean(crossing.updates, "{:,.0f}".format),
            "bytes": Shown(human_bytes(crossing.bytes.mean), crossing.bytes.mean) if crossing.bytes else Shown(),
            "seconds": Shown(human_seconds(crossing.seconds.mean), crossing.seconds.mean)
            if crossing.seconds
            else Shown(),
            "time speedup": Shown(str(time_factor), time_factor.factor) if time_factor else Shown(),
            "epsilon": _mean(crossing.epsilon, "{:.2f}".format),
        }
        found |= {f"{name} {SHARES[at]}": Shown() if series.central else cell for name, cell in told.items()}
    return found


def _mean(found: Stat | None, show: Callable[[float], str], spread: bool = True) -> Shown:
    return Shown(found.text(show) if spread else show(found.mean), found.mean) if found else Shown()


def _reached(crossings: Sequence[int | None], runs: Sequence[Run]) -> Shown:
    reached = stat(crossings)
    return Shown(crossing_text(crossings, runs), reached.mean if reached else None)


def comparison_table(
    rows: Sequence[ComparisonRow],
    bound: Bound | None,
    broken: Sequence[Broken] = (),
    diverged: Collection[Path] = (),
) -> TextTable:
    """Rounds to the targets and speedups. Runs in `diverged`, which holds their folders, are listed without results."""
    columns = {"title": "algorithm", "seeds": "seeds", "rounds": "rounds", "final": "final accuracy"}
    if max((len(row.series.runs) for row in rows), default=1) == 1:
        del columns["seeds"]
    if any(row.series.final_of("client_mean") for row in rows):
        columns |= {"client_mean": "mean over clients", "client_worst_decile": "worst decile"}
    columns |= {"epsilon": "epsilon"} if is_private(rows) else {}
    columns["updates"] = "client updates"
    if bound:
        columns |= {f"first {share}": f"to {share:.0%} = {share * bound.accuracy:.1%}" for share in SHARES}
        columns["speedups"] = "speedup at " + " / ".join(f"{share:.0%}" for share in SHARES)
    lines = []
    for row in rows:
        cells = {name: cell.text for name, cell in cells_of(row).items()}
        if row.crossings:
            factors = " / ".join(cells[f"speedup {share}"] for share in SHARES)
            cells["speedups"] = "-" if row.series.central else factors
        if any(run.folder in diverged for run in row.series.runs):
            label = row.label.removesuffix(" (unfinished)")  # as it would be after any number of further rounds
            cells = {"title": label, "seeds": cells["seeds"], "rounds": cells["rounds"], "final": "diverged"}
        lines.append([cells.get(name, "-") for name in columns])
    for one in broken:
        cells = {"title": str(one.folder), "rounds": "unreadable"}
        lines.append([cells.get(name, "") for name in columns])
    caption = f"targets are shares of {bound.accuracy:.2%} ({bound.source})" if bound else ""
    return TextTable([*columns.values()], lines, caption=caption)


def is_private(rows: Sequence[ComparisonRow]) -> bool:
    return any(row.series.epsilon() for row in rows)


def cost_table(rows: Sequence[ComparisonRow], clients: str, share: float = 0.8) -> TextTable:
    """The second axis: what the same target costs in updates, bytes, time and privacy, and the stricter crossing."""
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    columns = {"updates": f"client updates to {share:.0%}", "bytes": "bytes", "seconds": "simulated time",
               "time speedup": "speedup in time", **({"epsilon": "epsilon"} if is_private(rows) else {})}  # fmt: skip
    lines = []
    for row in rows:
        if not row.series.central and row.crossings:
            cells = cells_of(row)
            smooth = " / ".join(cells[f"smooth {share}"].text for share in SHARES)
            lines.append([row.label, smooth, *(cells[f"{name} {share}"].text for name in columns)])
    head = ["algorithm", f"mean of {WINDOW} evaluations to {shares}", *columns.values()]
    return TextTable(head, lines, caption=f"simulated time: {clients}")


def comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """A line for each series and target, numbers in full; a series without targets has one line."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        series, cells, final, spent = row.series, cells_of(row), row.final, row.series.epsilon()
        head = {
            "dataset": series.config.dataset, "algorithm": series.config.algorithm, "label": series.label,
            "seeds": len(series.runs), "finished": str(series.finished).lower(), "rounds": cells["rounds"].value,
            "final_accuracy": cells["final"].value, "final_accuracy_std": final.std if final else None,
        }  # fmt: skip
        head |= {name: cells[name].value for name in CLIENT_MEASURES if cells[name].value is not None}
        head |= {"epsilon": spent.mean, "epsilon_std": spent.std} if spent else {}
        if not row.crossings:
            lines.append(head)
        for share, crossing, speedup in zip(SHARES, row.crossings, row.speedups, strict=False):
            first = stat(crossing.first)
            means = {"round": first, "round_mean_of_5": stat(crossing.smooth), "client_updates": crossing.updates,
                     "bytes": crossing.bytes, "simulated_seconds": crossing.seconds}  # fmt: skip
            lines.append({
                **head, "share": share, "target": crossing.target, "runs_there": first.count if first else 0,
                **{name: found.mean if found else None for name, found in means.items()},
                "speedup": cells[f"speedup {share}"].value,
                "speedup_at_least": str(speedup.at_least).lower() if speedup else None,
                "time_speedup": cells[f"time speedup {share}"].value,
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
