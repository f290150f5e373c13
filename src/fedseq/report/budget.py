"""Runs at one budget: after the same number of rounds, and after the same simulated time.

The time is that of the run that takes the longest for these rounds. Others may have run more rounds by then, which
is what they are allowed; a series that had ended before is told as such.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedseq.report.costs import Costs, human_seconds
from fedseq.report.formats import TextTable
from fedseq.report.series import Series, Stat, make_series, stat
from fedseq.runs.reading import Run

FAIRNESS = "client_worst_decile"


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
