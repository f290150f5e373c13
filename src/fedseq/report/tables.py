"""Convergence as tables: for people, and in full for programs."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fedseq.report.convergence import SHARES, WINDOW, Bound, ComparisonRow, crossing_text
from fedseq.report.costs import human_bytes, human_seconds
from fedseq.report.formats import TextTable, to_csv
from fedseq.report.series import Stat, stat
from fedseq.runs.reading import Broken


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
