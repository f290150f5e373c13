"""Convergence in the terminal."""

from collections.abc import Sequence

from rich.table import Table

from fedseq.report.convergence import SHARES, WINDOW, Bound, Row, crossing_text
from fedseq.report.costs import Devices, human_bytes, human_seconds
from fedseq.report.reading import Broken


def comparison_table(rows: Sequence[Row], bound: Bound | None, broken: Sequence[Broken] = ()) -> Table:
    """Rounds to the targets and speedups."""
    title = f"targets are shares of {bound.accuracy:.2%} ({bound.source})" if bound else None
    table = Table(caption=title, caption_justify="left")
    table.add_column("algorithm", overflow="fold")
    seeds = max((len(row.series.runs) for row in rows), default=1) > 1
    for name in (*(("seeds",) if seeds else ()), "rounds", "final accuracy", "client updates"):
        table.add_column(name, justify="right")
    shares = SHARES if bound else ()
    for share in shares:
        table.add_column(f"to {share:.0%} = {share * (bound.accuracy if bound else 0):.1%}", justify="right")
    if shares:
        table.add_column("speedup at " + " / ".join(f"{share:.0%}" for share in shares), justify="right")
    for row in rows:
        table.add_row(*_cells(row, seeds))
    for folder in broken:
        table.add_row(str(folder.folder), *([""] if seeds else []), "unreadable")
    return table


def _cells(row: Row, seeds: bool) -> list[str]:
    series = row.series
    updates = sum(line.get("client_updates", 0) for run in series.runs for line in run.metrics) / len(series.runs)
    cells = [
        series.label + ("" if series.finished else " (unfinished)"),
        *([str(len(series.runs))] if seeds else []),
        series.rounds_text() + (" epochs" if series.central else ""),
        row.final.text(lambda value: f"{value:.2%}") if row.final else "-",
        "-" if series.central else f"{updates:,.0f}",
        *("-" if series.central else crossing_text(crossing.first, series.runs) for crossing in row.crossings),
    ]
    if row.crossings:
        cells.append("-" if series.central else " / ".join(str(factor or "-") for factor in row.speedups))
    return cells


def cost_table(rows: Sequence[Row], devices: Devices, share: float = 0.8) -> Table:
    """The second axis: what the same target costs in updates, bytes and simulated time, and the stricter crossing."""
    at = SHARES.index(share)
    table = Table(caption=f"simulated time: {devices.describe()}", caption_justify="left")
    table.add_column("algorithm", overflow="fold")
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    for name in (f"{WINDOW}-round mean to {shares}", f"client updates to {share:.0%}", "bytes", "simulated time",
                 "speedup in time"):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        if row.series.central or not row.crossings:
            continue
        crossing = row.crossings[at]
        table.add_row(
            row.label,
            " / ".join(crossing_text(one.smooth, row.series.runs) for one in row.crossings),
            crossing.updates.text(lambda value: f"{value:,.0f}") if crossing.updates else "-",
            human_bytes(crossing.bytes.mean) if crossing.bytes else "-",
            human_seconds(crossing.seconds.mean) if crossing.seconds else "-",
            str(row.time_speedups[at] or "-"),
        )
    return table
