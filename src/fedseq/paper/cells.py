"""The cells of a table, ours out of run folders beside the paper's, and the table as text, Markdown, CSV and LaTeX.

A cell reads: ours (the paper's, the difference).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedseq.grouping import quality
from fedseq.grouping.study import label
from fedseq.paper import published_tables as published
from fedseq.paper.plan import TITLES, PaperPlan
from fedseq.report.convergence import WINDOW, Bound, ComparisonRow, compare, crossing_text, find_bound
from fedseq.report.costs import human_seconds
from fedseq.report.formats import TextTable, to_csv, to_latex, to_markdown
from fedseq.report.series import Stat, make_series, stat
from fedseq.runs.reading import Run, read, readable
from fedseq.sweep.assignments import Assignment, diverged

LEGEND = "A cell reads: ours ± std over seeds (the paper's, difference)."
CSV_COLUMNS = ("block", "row", "column", "ours", "std", "seeds", "rounds", "beside", "published", "published_beside",
               "difference", "note")  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Ours and the paper's. `None` is no number; `note` says why there is none of ours."""

    ours: Stat | None = None
    published: float | None = None
    rounds: str = ""  # really run
    note: str = ""
    decimals: int = 2
    aside: str = ""  # beside ours, e.g. a speedup
    published_aside: str = ""
    in_paper: bool = True  # the paper has such a table

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.published is None else self.ours.mean - self.published


@dataclass(frozen=True)
class Block:
    """A table, or a part of one with a heading of its own. A plain text is a cell without a published value."""

    heading: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Cell | str]]
    notes: Sequence[str] = field(default_factory=tuple)


def ran(assignments: Sequence[Assignment]) -> list[Run]:
    return [run for run in readable(read(assignment.folder) for assignment in assignments) if run.rounds]


def missing(assignments: Sequence[Assignment]) -> str:
    """What stands in place of a number."""
    if any(diverged(assignment.folder) for assignment in assignments):
        return "diverged"
    return "not run"


def heading(plan: PaperPlan, dataset: str) -> str:
    ours = plan.scale.datasets.get(dataset)
    return TITLES[dataset] if ours in (None, dataset) else f"{TITLES[dataset]} in the paper, {ours} here"


def reasons(plan: PaperPlan, dataset: str) -> list[str]:
    return [] if plan.ours(dataset) else [f"{TITLES[dataset]} was not run: {plan.why_not(dataset)}"]


def accuracy_blocks(plan: PaperPlan) -> list[Block]:
    numbers = getattr(published, plan.experiment.published) if plan.experiment.published else {}
    return [_accuracy_block(plan, dataset, numbers.get(dataset)) for dataset in plan.experiment.datasets]


def _accuracy_block(plan: PaperPlan, dataset: str, numbers: Mapping[str, Sequence[float | None]] | None) -> Block:
    """The paper's numbers, if it has any, are by row and alpha."""
    rows: dict[str, list[Cell | str]] = {}
    for name, options in plan.experiment.rows.items():
        cells = []
        for alpha in plan.experiment.alphas:
            assignments = plan.runs(dataset, alpha, options)
            theirs = numbers[name][published.ALPHAS.index(alpha)] if numbers else None
            cells.append(replace(_final(assignments, theirs), in_paper=numbers is not None))
        rounds = dict.fromkeys(cell.rounds for cell in cells if cell.rounds)
        rows[name] = [*cells, "; ".join(rounds) or "-"]
    if plan.experiment.centralized:
        bound = _final(plan.centralized(dataset), published.CENTRALIZED[dataset])
        rows["Centralized"] = [bound, "", "", bound.rounds or "-"]
    columns = [*(f"alpha = {alpha:g}" for alpha in plan.experiment.alphas), "rounds run"]
    return Block(heading(plan, dataset), columns, rows, reasons(plan, dataset))


def _final(assignments: Sequence[Assignment], theirs: float | None) -> Cell:
    runs = ran(assignments)
    final = stat(None if value is None else 100 * value for value in (run.final_accuracy() for run in runs))
    if final is None or "diverged" in missing(assignments):
        return Cell(published=theirs, note=missing(assignments))
    return Cell(final, theirs, _rounds_text(runs, assignments))


def _rounds_text(runs: Sequence[Run], assignments: Sequence[Assignment]) -> str:
    text = ", ".join(dict.fromkeys(series.rounds_text() for series in make_series(runs)))
    if len(assignments) == 1:
        return text
    return f"{text} x {len(runs)} seeds" if len(runs) > 1 else f"{text} x 1 of {len(assignments)} seeds"


def convergence_blocks(plan: PaperPlan, targets: str) -> list[Block]:
    return [
        _convergence_block(plan, dataset, alpha, find_target(plan, dataset, targets))
        for dataset in plan.experiment.datasets
        for alpha in plan.experiment.alphas
    ]


def find_target(plan: PaperPlan, dataset: str, targets: str) -> Bound | None:
    """The accuracy that targets are shares of: the paper's, or that of a finished centralized run of the same scale."""
    if targets == "paper":
        return Bound(published.CENTRALIZED[dataset] / 100, "the paper's centralized accuracy", central=True)
    return find_bound(ran(plan.centralized(dataset)))


def _convergence_block(plan: PaperPlan, dataset: str, alpha: float, bound: Bound | None) -> Block:
    by_row = {name: plan.runs(dataset, alpha, options) for name, options in plan.experiment.rows.items()}
    runs = {name: ran(assignments) for name, assignments in by_row.items()}
    compared = compare([run for members in runs.values() for run in members], bound) if bound else []
    found = {  # of seeds that are done and seeds that are not, those that are done, which come first
        name: row
        for name, members in runs.items()
        for row in reversed(compared)
        if members and row.series.runs[0] in members
    }
    theirs = published.TABLE_2[dataset]
    at = published.ALPHAS.index(alpha)
    rows: dict[str, list[Cell | str]] = {}
    for name, assignments in by_row.items():
        note = missing(assignments) if bound or not assignments else "no bound"
        cells: list[Cell | str] = [
            _crossing(found.get(name), number, rate, note) for number, rate in enumerate(theirs[name][at])
        ]
        rows[name] = [*cells, *_effort(found.get(name)), _rounds_text(runs[name], assignments) if runs[name] else "-"]
    shares = [f"{share:.0%}" + (f" = {share * bound.accuracy:.1%}" if bound else "") for share in published.SHARES]
    columns = [*shares, f"80% by mean of {WINDOW} evaluations", "updates to 80%", "simulated time", "rounds run"]
    source = [f"targets: shares of {bound.accuracy:.2%}, {bound.source}"] if bound else []
    return Block(f"{heading(plan, dataset)}, alpha = {alpha:g}", columns, rows, [*source, *reasons(plan, dataset)])


def _crossing(row: ComparisonRow | None, number: int, rate: published.Rate, note: str) -> Cell:
    theirs: dict[str, Any] = {
        "published": rate[0],
        "published_aside": f"{rate[1]:g}x" if rate[1] else "",
        "decimals": 0,
    }
    if row is None:
        return Cell(note=note, **theirs)
    crossing, factor = row.crossings[number], row.speedups[number]
    rounds = row.series.rounds_text()
    if None in crossing.first:
        return Cell(rounds=rounds, note=crossing_text(crossing.first, row.series.runs), **theirs)
    return Cell(stat(crossing.first), rounds=rounds, aside=str(factor or ""), **theirs)


def _effort(row: ComparisonRow | None) -> list[str]:
    if row is None:
        return ["-"] * 3
    crossing = row.crossings[published.SHARES.index(0.8)]
    return [
        crossing_text(crossing.smooth, row.series.runs),
        f"{crossing.updates.mean:,.0f}" if crossing.updates else "-",
        human_seconds(crossing.seconds.mean) if crossing.seconds else "-",
    ]


def quality_blocks(plan: PaperPlan) -> list[Block]:
    """Means over the alphas, then over the seeds. Beside the paper's measures, distinct classes at alpha 0."""
    blocks = []
    for dataset in plan.experiment.datasets:
        studies = {alpha: plan.studies(dataset, alpha) for alpha in plan.experiment.alphas}
        rows: dict[str, list[Cell | str]] = {}
        for name, criterion in plan.experiment.rows.items():
            measured = _measures(studies, criterion)
            theirs = published.TABLE_4[dataset][name]
            note = missing(studies[plan.experiment.alphas[0]])
            rows[name] = [
                *(Cell(stat(measured[key]), value, decimals=3, note="" if measured[key] else note)
                  for key, value in zip(("balance", "covered"), theirs, strict=True)),
                f"{np.mean(measured['distinct']):.2f}" if measured["distinct"] else "-",
            ]  # fmt: skip
        columns = [*published.MEASURES, "distinct classes at alpha 0"]
        epochs = ", ".join(map(str, plan.experiment.epochs))
        blocks.append(
            Block(
                heading(plan, dataset),
                columns,
                rows,
                [f"{epochs} epochs of pre-training, no rounds", *reasons(plan, dataset)],
            )
        )
    return blocks


def _measures(
    studies: Mapping[float, Sequence[Assignment]], criterion: Mapping[str, str | None]
) -> dict[str, list[float]]:
    """One value a seed; only seeds whose every alpha is there count."""
    found: dict[str, list[float]] = {"balance": [], "covered": [], "distinct": []}
    for assignments in zip(*studies.values(), strict=True):
        if not all(assignment.studied for assignment in assignments):
            continue
        formed = [study_groups(assignment, criterion) for assignment in assignments]
        means = [quality(counts, [list(map(int, group)) for group in groups]).means() for counts, groups in formed]
        for key in ("balance", "covered"):
            found[key].append(sum(mean[key] for mean in means) / len(means))
        found["distinct"].append(means[0]["distinct"])
    return found


def study_groups(assignment: Assignment, criterion: Mapping[str, str | None]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Label counts of the clients, and the clients of each superclient."""
    name = label((criterion["approximator"], criterion["grouping_metric"], criterion["grouping"] or ""))
    with np.load(assignment.study) as arrays:
        group_of = arrays[f"groups {name}"]
        return arrays["counts"], [np.flatnonzero(group_of == number) for number in range(group_of.max() + 1)]


def cell_text(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{own_text(cell)} ({', '.join(_theirs(cell))})" if cell.in_paper else own_text(cell)


def own_text(cell: Cell) -> str:
    if cell.ours is None:
        return cell.note or "not run"
    text = cell.ours.text(lambda value: f"{value:.{cell.decimals}f}")
    return f"{text}, {cell.aside}" if cell.aside else text


def _theirs(cell: Cell) -> Iterator[str]:
    yield "-" if cell.published is None else f"{cell.published:.{cell.decimals}f}"
    if cell.published_aside:
        yield cell.published_aside
    if cell.difference is not None:
        yield f"{cell.difference:+.{cell.decimals}f}"


def as_text(block: Block) -> TextTable:
    rows = [[name, *map(cell_text, cells)] for name, cells in block.rows.items()]
    return TextTable(["", *block.columns], rows, block.heading, "; ".join(block.notes))


def markdown(title: str, blocks: Sequence[Block], notes: Sequence[str]) -> str:
    head = [f"# {title}\n", f"{LEGEND}\n", *(f"{note}\n" for note in notes if note)]
    return "\n".join([*head, *(f"## {to_markdown(as_text(block))}" for block in blocks)])


def latex(title: str, blocks: Sequence[Block]) -> str:
    head = f"% {title}\n% {LEGEND}\n% needs \\usepackage{{booktabs}}\n"
    return "\n".join([head, *(to_latex(as_text(block)) for block in blocks)])


def csv(blocks: Sequence[Block]) -> str:
    """A line for each cell, numbers in full."""
    lines: list[list[float | str | None]] = []
    for block in blocks:
        for name, cells in block.rows.items():
            for column, cell in zip(block.columns, cells, strict=True):
                if isinstance(cell, str):
                    if cell:
                        lines.append([block.heading, name, column, *[None] * 8, cell])
                    continue
                ours = cell.ours
                lines.append([
                    block.heading, name, column, *((ours.mean, ours.std, ours.count) if ours else [None] * 3),
                    cell.rounds, cell.aside, cell.published, cell.published_aside, cell.difference,
                    None if ours else cell.note or "not run",
                ])  # fmt: skip
    return to_csv(CSV_COLUMNS, lines)
