"""Reproduce a table or figure of the paper, beside what it published."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq.basics.errors import FedSeqError
from fedseq.cli.console import ConsoleReporter, make_console, print_table, work_through_visibly
from fedseq.report.formats import TextTable

if TYPE_CHECKING:
    from fedseq.paper.plan import PaperPlan
    from fedseq.sweep.assignments import Assignment

EXAMPLE = """fedseq paper list
  fedseq paper table2 --scale tiny --yes
  fedseq paper table1 --scale small --only algorithm=fedavg|fedseq,alpha=0 --data-dir DIR"""
TARGETS = ("measured", "paper")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a table, figure or tuning grid; `all`; `list` shows them")
    parser.add_argument("--scale", default="tiny", metavar="tiny|small|paper",
                        help="tiny: digits, minutes; small: CIFAR, hours; paper: weeks (default: tiny)")  # fmt: skip
    parser.add_argument("--only", metavar="OPTION=VALUE,...", help="run only these, such as algorithm=fedseq,alpha=0")
    parser.add_argument("--targets", default="measured", choices=TARGETS, metavar="|".join(TARGETS),
                        help="accuracy of which targets are shares: of our centralized run or the paper's")  # fmt: skip
    parser.add_argument("--seeds", metavar="N,M", help="seeds, such as 0,3 or 0-4 (default: those of the scale)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data sets' files")
    parser.add_argument(
        "--out", default="runs/paper", metavar="DIR", help="folder for runs and results (default: runs/paper)"
    )
    parser.add_argument("--jobs", metavar="N", help="number of runs at a time (default: one per core)")
    parser.add_argument("--yes", action="store_true", help="start without asking")
    parser.add_argument("--show", action="store_true", help="run nothing; use the runs that are there")


def main(arguments: Namespace) -> int:
    from fedseq.paper.plan import NAMES, parse_only, select
    from fedseq.sweep.assignments import is_done, refuse_other_runs
    from fedseq.sweep.pool import read_jobs

    console = make_console()
    if arguments.name == "list":
        print_table(console, _list())
        return 0
    jobs, only = read_jobs(arguments.jobs), parse_only(arguments.only)
    names = NAMES if arguments.name == "all" else (arguments.name,)
    plans = _plans(names, arguments, console)
    assignments = select(list(dict.fromkeys(one for plan in plans for one in plan.assignments())), only)
    for assignment in assignments:
        refuse_other_runs(assignment)
    todo = [] if arguments.show else [assignment for assignment in assignments if not is_done(assignment)]
    code = 0
    if todo:
        _announce(todo, jobs, plans[0], console)
        asked = not arguments.yes and sys.stdin.isatty()
        if not arguments.yes and not (asked and input("start? [y/N] ").strip().lower() in ("y", "yes")):
            raise FedSeqError("nothing was started. Say yes, add --yes, or make a smaller choice with --only.")
        code = work_through_visibly(assignments, jobs, console)
    for plan in plans if code != 130 else ():
        _make(plan, arguments.targets, console)
    return code


def _list() -> TextTable:
    from fedseq.paper.plan import NAMES, SCALES, TUNING, PaperPlan, load_experiment

    rows = []
    for name in (*NAMES, *TUNING):
        experiment = load_experiment(name)
        counts = [len(set(PaperPlan(experiment, scale, Path()).assignments())) for scale in SCALES.values()]
        rows.append([name, experiment.title, *map(str, counts)])
    caption = "\n".join(f"{scale.name}: {scale.describe()}" for scale in SCALES.values())
    return TextTable(["name", "what", *(f"runs at {name}" for name in SCALES)], rows, caption=caption, left=2)


def _plans(names: tuple[str, ...], arguments: Namespace, console: Any) -> list["PaperPlan"]:
    from fedseq.paper.plan import PaperPlan, find_scale, load_experiment
    from fedseq.sweep.assignments import read_values

    experiments = [load_experiment(name) for name in names]
    scale = find_scale(arguments.scale)
    if arguments.seeds:
        scale = replace(scale, seeds=tuple(read_values("seed", arguments.seeds)))
    wanted = {ours for e in experiments for name, ours in scale.datasets.items() if name in e.datasets}
    absent = _absent(sorted(wanted), arguments.data_dir, console)
    return [PaperPlan(experiment, scale, Path(arguments.out), arguments.data_dir, absent) for experiment in experiments]


def _absent(names: list[str], data_dir: str | None, console: Any) -> dict[str, str]:
    """Data sets that cannot be read, and why; their cells are not run."""
    from fedseq.data import load_dataset

    found = {}
    for name in names:
        try:
            with ConsoleReporter(console) as reporter:
                load_dataset(name, Path(data_dir) if data_dir else None, reporter.stage)
        except FedSeqError as error:
            found[name] = str(error)
            console.print(f"{name} is not run: {error}", markup=False)
    return found


def _announce(todo: list["Assignment"], jobs: int, plan: "PaperPlan", console: Any) -> None:
    from fedseq.paper.estimate import total_seconds
    from fedseq.report.costs import human_seconds
    from fedseq.sweep.assignments import rounds_left

    console.print(f"scale {plan.scale.name}: {plan.scale.describe()}. Measuring a few rounds ...", markup=False)
    runs = [assignment for assignment in todo if not assignment.epochs]
    studies = len(todo) - len(runs)
    parts = [f"{len(runs)} runs, {sum(map(rounds_left, runs)):,} rounds"] if runs else []
    parts += [f"{studies} studies of grouping criteria"] if studies else []
    seconds = total_seconds(todo, jobs)
    hours = f" = {seconds / 3600:.2f} hours" if seconds > 90 else ""
    console.print(
        f"to do: {' and '.join(parts)}; about {human_seconds(seconds)}{hours} with {min(jobs, len(todo))} at a time",
        markup=False,
    )


def _make(plan: "PaperPlan", targets: str, console: Any) -> None:
    from fedseq.paper.panels import FIGURES, draw

    folder = plan.root / plan.scale.name
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / plan.experiment.name
    paths = draw(plan, stem) if plan.experiment.kind in FIGURES else _write_table(plan, targets, stem, console)
    console.print(f"{plan.experiment.name}: {'  '.join(map(str, paths))}", markup=False)


def _write_table(plan: "PaperPlan", targets: str, stem: Path, console: Any) -> list[Path]:
    from fedseq.paper import cells

    if plan.experiment.kind == "convergence":
        blocks = cells.convergence_blocks(plan, targets)
    else:
        blocks = {"accuracy": cells.accuracy_blocks, "quality": cells.quality_blocks}[plan.experiment.kind](plan)
    notes = [f"Scale {plan.scale.name}: {plan.scale.describe()}.", plan.scale.note, plan.experiment.notes]
    console.print(f"\n{plan.experiment.title}\n{cells.LEGEND} {' '.join(note for note in notes if note)}", markup=False)
    for block in blocks:
        print_table(console, cells.as_text(block))
    texts = {
        ".md": cells.markdown(plan.experiment.title, blocks, notes),
        ".csv": cells.csv(blocks),
        ".tex": cells.latex(plan.experiment.title, blocks),
    }
    paths = [stem.with_suffix(suffix) for suffix in texts]
    for path in paths:
        path.write_text(texts[path.suffix], encoding="utf-8")
    return paths
