"""`make results`: the tables and figures of docs/results.md, its second page and the README, from the runs in results/.

Nothing is counted here but what `fedseq compare` counts. A number that no run in results/ holds is the paper's, marked
as such, from its tables as transcribed in fedseq.paper.published_tables.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedseq.grouping import Quality, quality
from fedseq.paper.plan import load_experiment
from fedseq.paper.published_tables import ALPHAS, CENTRALIZED, TABLE_2
from fedseq.report.convergence import SHARES, WINDOW, Bound, ComparisonRow, compare, crossing_text
from fedseq.report.costs import ROUND, human_bytes, human_seconds
from fedseq.report.figures import COLOURS, Look, curves, look, plt, save
from fedseq.report.formats import TextTable, to_markdown
from fedseq.report.series import Series, make_series, stat
from fedseq.runs.reading import Run, read_all, readable
from pages import DOCS, IMAGES, ROOT, fill

MILESTONES = (100, 200, 300)  # rounds at which runs are compared that are too short for the targets
PAPER_ROUNDS = {"cifar10": 10_000, "cifar100": 20_000}
PAGES, RESULTS = (DOCS / "results.md", DOCS / "results-tried.md", ROOT / "README.md"), ROOT / "results"
HEADLINE = {  # the README's rows: the folder of the runs, and the paper's own name where it is a row of its Table II
    "FedDyn, the paper's setting": ("cifar10-paper/feddyn-s0", "FedDyn"),
    "FedSeq + FedDyn, the paper's setting and best": ("cifar10-paper/fedseq-feddyn-s0", "FedSeq + FedDyn"),
    "FedAvg + FedACG + window, tuned": ("cifar10-record-fedavg", None),
    "FedSeq + FedACG + window, 10 chains of 10 clients": ("cifar10-chains/chains-of-10", None),
    "FedSeq + FedACG + window, 2 chains of 50 clients": ("cifar10-record", None),
}


@dataclass(frozen=True)
class Part:
    """The runs in one folder of results/, and what of them is told."""

    folder: str
    dataset: str
    beside: tuple[str, ...] = ()  # other folders, or runs in them, that are in its table too
    paper: tuple[str, ...] = ()  # rows of the paper's Table II, alpha 0, to stand below
    ratios: bool = False  # its runs are the paper's own settings: they stand beside its rounds
    costs: bool = False  # what its first target costs stands in a table
    milestones: bool = False  # its runs are too short for targets: they are compared after some rounds
    by_folder: bool = False  # runs are called by their folders, which say what was tried
    over: str = ""  # what its figure, if it has one, shows accuracy over
    drawn_beside: tuple[str, ...] = ()  # as `beside`, for its figure alone

    @property
    def runs(self) -> list[Run]:
        found = [run for name in (*self.beside, self.folder) for run in runs_in(name)]
        return [_cut(run, MILESTONES[-1]) for run in found] if self.milestones else found

    @property
    def drawn(self) -> list[Run]:
        return [*self.runs, *(run for name in self.drawn_beside for run in runs_in(name))]

    @property
    def bound(self) -> Bound:
        return Bound(CENTRALIZED[self.dataset] / 100, "the paper's centralized accuracy")


def runs_in(name: str) -> list[Run]:
    """The runs in a folder of results/, or the one it is."""
    found = (file.parent for file in (RESULTS / name).rglob("config.yaml"))
    return readable(read_all(sorted(found, key=_in_order)))


def _in_order(folder: Path) -> list[str | int]:
    """By name, and numbers in it by size."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(folder))]


PARTS = (
    Part("cifar10-check", "cifar10"),
    Part("cifar10-paper", "cifar10", ratios=True, costs=True, over=ROUND),
    Part("cifar10-grouping", "cifar10", beside=("cifar10-paper/fedseq-s0",), milestones=True, over=ROUND),
    Part(
        "cifar10-alpha",
        "cifar10",
        beside=("cifar10-paper/fedavg-s0", "cifar10-paper/fedseq-s0"),
        milestones=True,
        over=ROUND,
    ),
    Part("cifar10-controls", "cifar10", by_folder=True),
    Part("cifar10-centralized", "cifar10"),
    Part(
        "cifar10-record",
        "cifar10",
        paper=("FedAvg", "FedDyn", "FedSeq", "FedSeq + FedDyn"),
        over=ROUND,
        drawn_beside=(
            "cifar10-record-fedavg",
            "cifar10-controls/fedavg-lr08-s0",
            *(f"cifar10-paper/{name}-s0" for name in ("fedavg", "feddyn", "fedseq", "fedseq-feddyn")),
        ),
    ),
    Part("cifar10-record-fedavg", "cifar10"),
    Part("cifar10-record-long", "cifar10"),
    Part(
        "cifar10-chains",
        "cifar10",
        beside=("cifar10-record/record-s1",),
        costs=True,
        by_folder=True,
        over="seconds",
        drawn_beside=("cifar10-paper/feddyn-s0",),
    ),
    Part(
        "cifar10-without",
        "cifar10",
        beside=("cifar10-record/record-s1", "cifar10-chains/chains-of-10"),
        by_folder=True,
    ),
    Part(
        "cifar100-record",
        "cifar100",
        paper=("FedAvg", "FedSeq", "FedSeq + FedDyn"),
        costs=True,
        over=ROUND,
        drawn_beside=("cifar100-paper",),
    ),
    Part("cifar100-paper", "cifar100"),
    Part("cifar10-tuning", "cifar10", by_folder=True),
    Part("cifar10-fedavg-tuning", "cifar10", by_folder=True),
)

ALGORITHMS = {  # what a person would say, and the number of its colour
    "fedseq+fedacg+window": ("FedSeq + FedACG", 0),
    "fedavg+fedacg+window": ("FedAvg + FedACG", 1),
    "feddyn": ("FedDyn", 2),
    "fedavg": ("FedAvg", 3),
    "scaffold": ("SCAFFOLD", 4),
    "fedseq": ("FedSeq", 5),
    "fedseq+feddyn": ("FedSeq + FedDyn", 6),
    "fedprox": ("FedProx", 7),
    "fedseqinter": ("FedSeqInter", 13),
}
VARIANTS = {"lr 0.08": 1, "alpha 0.2": 1, "alpha 0.5": 2, "5 chains of 20": 1, "10 chains of 10": 2}  # and their lines
BY_THE_CLOCK = ("cifar10-record", "cifar10-paper", "cifar10-controls/fedavg-lr08-s0")  # drawn over simulated time


def convergence_table(part: Part) -> str:
    """Rounds to the paper's targets, by the first evaluation and by the mean of five; the paper's own below."""
    targets = [f"to {100 * share * part.bound.accuracy:.2f} %" for share in SHARES]
    crossed = [cell for target in targets for cell in (target, "mean of 5")]
    columns = ["run", "seeds", "rounds", "accuracy at the end", *crossed]
    compared = compare(part.runs, part.bound)
    rows = [_convergence_cells(part, row) for row in compared]
    if not part.by_folder:
        # Where an average of models is evaluated, the last of them is too. How far a run went, the average decides.
        ran = {_called(part, row): row.series.rounds_text() for row in compared}
        raw = [_raw(run) for run in part.runs if "accuracy_raw" in run.metrics[-1]]
        for row in compare(raw, part.bound) if raw else ():
            cells = _convergence_cells(part, row)
            rows.append([f"{cells[0]}, raw model", cells[1], ran[cells[0]], *cells[3:]])
    for name in part.paper:
        published = TABLE_2[part.dataset][name][0]
        cells = [cell for round_, _ in published for cell in (str(round_ or "-"), "-")]
        rows.append([f"the paper's {name}", "-", str(PAPER_ROUNDS[part.dataset]), "-", *cells])
    return to_markdown(TextTable(columns, rows))


def ratio_table(part: Part) -> str:
    """Rounds to the paper's targets: ours, the paper's, and ours over the paper's."""
    rows = compare(part.runs, part.bound)
    reached = [at for at in range(len(SHARES)) if any(stat(row.crossings[at].first) for row in rows)] or [0]
    targets = [f"{100 * SHARES[share] * part.bound.accuracy:.2f} %" for share in reached]
    columns = ["algorithm"]
    for target in targets:
        columns += [f"to {target}: the paper", "ours", "ratio", "ours, mean of 5"]
    names = {options["algorithm"]: name for name, options in load_experiment("table1").rows.items()}
    lines = []
    for row in rows:
        config = row.series.config
        published = TABLE_2[part.dataset][names[config.algorithm]][ALPHAS.index(config.alpha)]
        cells = [names[config.algorithm] + (f", alpha {config.alpha:g}" if config.alpha else "")]
        for share in reached:
            ours, (theirs, _) = row.crossings[share].first, published[share]
            mean = None if None in ours else stat(ours)
            ratio = f"{mean.mean / theirs:.2f}" if mean and theirs else "-"
            smooth = crossing_text(row.crossings[share].smooth, row.series.runs)
            cells += [str(theirs or "-"), crossing_text(ours, row.series.runs), ratio, smooth]
        lines.append(cells)
    return to_markdown(TextTable(columns, lines))


def milestone_table(part: Part) -> str:
    """How far runs are after some rounds. One evaluation is noisy: each number is the mean of five in a row."""
    measures = ["classes in a unit", "in the worst"]
    columns = ["run", "seeds", *measures, *(f"after {round_} rounds" for round_ in MILESTONES)]
    lines = []
    for series in make_series(part.runs):
        found = list(map(_quality, series.runs))
        classes = _text((one.means()["distinct"] for one in found), "{:.2f}".format)
        reached = (_text((_mean_of_five(run, round_) for run in series.runs), percent) for round_ in MILESTONES)
        worst = str(min(one.fewest_classes for one in found))
        lines.append([_told(series.runs[0]), str(len(found)), classes, worst, *reached])
    return to_markdown(TextTable(columns, lines))


def _told(run: Run) -> str:
    """The algorithm, how different its clients are, and by whom its superclients were made."""
    made_by = f", {run.config.grouping}" if run.details.superclients else ""
    return f"{run.config.algorithm}, alpha {run.config.alpha:g}{made_by}"


def _text(values: Iterable[float | None], show: Callable[[float], str]) -> str:
    found = stat(values)
    return found.text(show) if found else "-"


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _quality(run: Run) -> Quality:
    """Of its units: superclients, or clients alone."""
    details = run.details
    units = details.superclients or [[client] for client in range(len(details.label_counts))]
    return quality(np.array(details.label_counts), units)


def _mean_of_five(run: Run, round_: int) -> float | None:
    """None where the run ended before."""
    if run.rounds < round_:
        return None
    return statistics.fmean([accuracy for at, accuracy in run.evaluations if at <= round_][-WINDOW:])


def _cut(run: Run, rounds: int) -> Run:
    """Its first rounds, as if no more had been asked for."""
    asked = replace(run.config, rounds=rounds, target_accuracy=None)
    return replace(run, config=asked, metrics=[line for line in run.metrics if line["round"] <= rounds])


def _raw(run: Run) -> Run:
    return replace(run, metrics=[{**line, "accuracy": line.get("accuracy_raw")} for line in run.metrics])


def _convergence_cells(part: Part, row: ComparisonRow) -> list[str]:
    runs = row.series.runs
    cells = [_called(part, row), str(len(runs)), row.series.rounds_text()]
    cells.append(_text((run.evaluations[-1][1] for run in runs), percent))
    return cells + [crossing_text(found, runs) for one in row.crossings for found in (one.first, one.smooth)]


def _called(part: Part, row: ComparisonRow) -> str:
    return row.series.runs[0].folder.name if part.by_folder else row.label


def cost_table(part: Part) -> str:
    """What the first target costs beside rounds."""
    columns = ["run", "client updates", "bytes moved", "simulated time"]
    lines = [
        [_called(part, row), f"{at.updates.mean:,.0f}", human_bytes(at.bytes.mean), human_seconds(at.seconds.mean)]
        for row in compare(part.runs, part.bound)
        if (at := row.crossings[0]).updates and at.bytes and at.seconds
    ]
    return to_markdown(TextTable(columns, lines))


def headline_table() -> str:
    """What 60 % costs, for the README."""
    columns = ["algorithm", "rounds: the paper", "rounds: ours", "client updates", "moved", "simulated time"]
    lines = []
    for name, (folder, published) in HEADLINE.items():
        runs = runs_in(folder)
        (row,) = compare(runs, PARTS[0].bound)
        at = row.crossings[0]
        paper = str(TABLE_2["cifar10"][published][0][0][0]) if published else "-"
        cells = ["-", "-", "-"]
        if at.updates and at.bytes and at.seconds:
            cells = [f"{at.updates.mean:,.0f}", human_bytes(at.bytes.mean), human_seconds(at.seconds.mean)]
        lines.append([name, paper, crossing_text(at.first, runs), *cells])
    return to_markdown(TextTable(columns, lines))


def tables() -> dict[str, str]:
    found = {"headline": headline_table()}
    for part in PARTS:
        found[part.folder] = (milestone_table if part.milestones else convergence_table)(part)
        if part.ratios:
            found[f"{part.folder} ratios"] = ratio_table(part)
        if part.costs:
            found[f"{part.folder} costs"] = cost_table(part)
    return found


def draw(folder: Path) -> Iterator[Path]:
    yield draw_demo(folder)
    timed = [run for name in BY_THE_CLOCK for run in runs_in(name)]
    yield curves(timed, folder / "cifar10-time.png", PARTS[0].bound, "seconds", shown=shown)
    for part in PARTS:
        if part.over:
            alike = len({run.config.algorithm for run in part.drawn}) == 1  # then each variant has a colour
            looks = None if alike else shown
            yield curves(part.drawn, folder / f"{part.folder}.png", part.bound, part.over, shown=looks)


def draw_demo(folder: Path) -> Path:
    """What `fedseq demo` shows, over rounds and over simulated time."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axes, axis in zip(panels, (ROUND, "simulated_seconds"), strict=True):
        for one in make_series(runs_in("demo")):
            (run,) = one.runs
            if one.central:
                axes.axhline(run.final_accuracy() or 0, color="#888888", linestyle=":", label="all data in one place")
                continue
            name, (colour, line) = shown(one)
            at, means = zip(*((row[axis], row["accuracy"]) for row in run.metrics), strict=True)
            axes.plot(at, means, color=colour, linestyle=line, label=name, linewidth=1.8)
        axes.set(xlabel="round" if axis == ROUND else "simulated time (s)", ylim=(0, 1))
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(loc="lower right", frameon=False)
    return save(figure, folder / "demo.png")


def shown(series: Series) -> tuple[str, Look]:
    """An algorithm has one colour in all figures; of several variants each has a line of its own."""
    name, number = ALGORITHMS[series.config.algorithm]
    variant = series.label.partition(" (")[2].removesuffix(")")
    if series.config.algorithm == "fedseq+fedacg+window":
        together = series.config.superclients_per_chain
        variant = f"{10 // together} chains of {10 * together}"
    return f"{name}, {variant}" if variant else name, look(number + len(COLOURS) * VARIANTS.get(variant, 0))


def main() -> None:
    fill(PAGES, tables())
    for path in (*PAGES, *draw(IMAGES)):
        print(path.relative_to(ROOT))  # noqa: T201


if __name__ == "__main__":
    main()
