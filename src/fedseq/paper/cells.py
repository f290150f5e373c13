"""The numbers of a table: ours out of run folders, beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedseq.grouping import quality
from fedseq.paper import published
from fedseq.paper.plan import Plan
from fedseq.paper.scales import TITLES
from fedseq.paper.tasks import Task, failure
from fedseq.report.convergence import Bound, Row, compare, crossing_text
from fedseq.report.costs import human_seconds
from fedseq.report.reading import read, readable
from fedseq.report.series import Stat, make_series, stat
from fedseq.results import Run


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


def ran(tasks: Sequence[Task]) -> list[Run]:
    return [run for run in readable(read(task.folder) for task in tasks) if run.rounds]


def missing(tasks: Sequence[Task]) -> str:
    """What stands in place of a number."""
    if any("diverged" in failure(task.folder) for task in tasks):
        return "diverged"
    return "not run"


def heading(plan: Plan, dataset: str) -> str:
    ours = plan.scale.datasets.get(dataset)
    return TITLES[dataset] if ours in (None, dataset) else f"{TITLES[dataset]} in the paper, {ours} here"


def reasons(plan: Plan, dataset: str) -> list[str]:
    return [] if plan.ours(dataset) else [f"{TITLES[dataset]} was not run: {plan.why_not(dataset)}"]


def accuracy_blocks(plan: Plan) -> list[Block]:
    numbers = getattr(published, plan.experiment.published or "")
    return [_accuracy_block(plan, dataset, numbers[dataset]) for dataset in plan.experiment.datasets]


def _accuracy_block(plan: Plan, dataset: str, numbers: Mapping[str, Sequence[float | None]]) -> Block:
    rows: dict[str, list[Cell | str]] = {}
    for name, options in plan.experiment.rows.items():
        cells = []
        for alpha in plan.experiment.alphas:
            tasks = plan.runs(dataset, alpha, options)
            cells.append(_final(tasks, numbers[name][published.ALPHAS.index(alpha)]))
        rows[name] = [*cells, _rounds_of(cells)]
    if plan.experiment.centralized:
        bound = _final(plan.centralized(dataset), published.CENTRALIZED[dataset])
        rows["Centralized"] = [bound, "", "", bound.rounds + " epochs" if bound.rounds else "-"]
    columns = [*(f"alpha = {alpha:g}" for alpha in plan.experiment.alphas), "rounds run"]
    return Block(heading(plan, dataset), columns, rows, reasons(plan, dataset))


def _final(tasks: Sequence[Task], theirs: float | None) -> Cell:
    runs = ran(tasks)
    final = stat(None if value is None else 100 * value for value in (run.final_accuracy() for run in runs))
    if final is None or "diverged" in missing(tasks):
        return Cell(published=theirs, note=missing(tasks))
    return Cell(final, theirs, _rounds_text(runs, tasks))


def _rounds_text(runs: Sequence[Run], tasks: Sequence[Task]) -> str:
    texts = dict.fromkeys(series.rounds_text() for series in make_series(runs))
    seeds = "" if len(tasks) == 1 else f" x {len(runs)} seeds" if len(runs) > 1 else f" x 1 of {len(tasks)} seeds"
    return ", ".join(texts) + seeds


def _rounds_of(cells: Sequence[Cell]) -> str:
    return "; ".join(dict.fromkeys(cell.rounds for cell in cells if cell.rounds)) or "-"


def convergence_blocks(plan: Plan, targets: str) -> list[Block]:
    return [
        _convergence_block(plan, dataset, alpha, find_target(plan, dataset, targets))
        for dataset in plan.experiment.datasets
        for alpha in plan.experiment.alphas
    ]


def find_target(plan: Plan, dataset: str, targets: str) -> Bound | None:
    """The accuracy that targets are shares of: the paper's, or that of a centralized run of the same scale."""
    if targets == "paper":
        return Bound(published.CENTRALIZED[dataset] / 100, "the paper's centralized accuracy")
    final = stat(run.final_accuracy() for run in ran(plan.centralized(dataset)))
    return Bound(final.mean, "centralized, measured") if final else None


def _convergence_block(plan: Plan, dataset: str, alpha: float, bound: Bound | None) -> Block:
    by_row = {name: plan.runs(dataset, alpha, options) for name, options in plan.experiment.rows.items()}
    runs = {name: ran(tasks) for name, tasks in by_row.items()}
    compared = compare([run for members in runs.values() for run in members], bound) if bound else []
    found = {
        name: row for name, members in runs.items() for row in compared if members and row.series.runs[0] in members
    }
    theirs = published.TABLE_2[dataset]
    at = published.ALPHAS.index(alpha)
    rows: dict[str, list[Cell | str]] = {}
    for name, tasks in by_row.items():
        note = missing(tasks) if bound or not tasks else "no bound"
        cells: list[Cell | str] = [
            _crossing(found.get(name), number, rate, note) for number, rate in enumerate(theirs[name][at])
        ]
        rows[name] = [*cells, *_effort(found.get(name)), _rounds_text(runs[name], tasks) if runs[name] else "-"]
    shares = [f"{share:.0%}" + (f" = {share * bound.accuracy:.1%}" if bound else "") for share in published.SHARES]
    columns = [*shares, "80% by 5-round mean", "updates to 80%", "simulated time", "rounds run"]
    source = [f"targets: shares of {bound.accuracy:.2%}, {bound.source}"] if bound else []
    return Block(f"{heading(plan, dataset)}, alpha = {alpha:g}", columns, rows, [*source, *reasons(plan, dataset)])


def _crossing(row: Row | None, number: int, rate: published.Rate, note: str) -> Cell:
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


def _effort(row: Row | None) -> list[str]:
    if row is None:
        return ["-"] * 3
    crossing = row.crossings[published.SHARES.index(0.8)]
    return [
        crossing_text(crossing.smooth, row.series.runs),
        f"{crossing.updates.mean:,.0f}" if crossing.updates else "-",
        human_seconds(crossing.seconds.mean) if crossing.seconds else "-",
    ]


def quality_blocks(plan: Plan) -> list[Block]:
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


def _measures(studies: Mapping[float, Sequence[Task]], criterion: Mapping[str, str | None]) -> dict[str, list[float]]:
    """One value a seed; only seeds whose every alpha is there count."""
    found: dict[str, list[float]] = {"balance": [], "covered": [], "distinct": []}
    for tasks in zip(*studies.values(), strict=True):
        if not all(task.study.exists() for task in tasks):
            continue
        means = [study_quality(task, criterion) for task in tasks]
        for key in ("balance", "covered"):
            found[key].append(sum(mean[key] for mean in means) / len(means))
        found["distinct"].append(means[0]["distinct"])
    return found


def study_groups(task: Task, criterion: Mapping[str, str | None]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Label counts of the clients, and the clients of each superclient."""
    name = " ".join(part for part in (criterion["approximator"], criterion["metric"], criterion["method"]) if part)
    with np.load(task.study) as arrays:
        group_of = arrays[f"groups {name}"]
        return arrays["counts"], [np.flatnonzero(group_of == number) for number in range(group_of.max() + 1)]


def study_quality(task: Task, criterion: Mapping[str, str | None]) -> dict[str, float]:
    counts, groups = study_groups(task, criterion)
    return quality(counts, [list(map(int, group)) for group in groups]).means()
