"""Run all combinations of several option values, some at a time."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from fedseq.cli import add_config_file, add_config_flags, options_from, preset_from
from fedseq.cli.console import make_console, print_table, work_through_visibly
from fedseq.options.config import all_options

EXAMPLE = """fedseq sweep --algorithm centralized,fedavg,fedseq --alpha 0,0.2 --seed 0-2 --rounds 60
  fedseq sweep --lr 0.1,0.03 --grouping greedy,exchange --rounds 60"""
OF_ONE_RUN = ("engine", "workers", "ray_address")  # each run of a sweep has one process


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        f"{__doc__}\n\nEvery option takes several values, separated by commas; whole numbers also as a range, 0-4; "
        "in a file, a list.\nEach combination is a run; what an algorithm does not use is left out for it."
    )
    add_config_file(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the runs (default: runs/sweep-DATASET)")
    parser.add_argument("--jobs", metavar="N", help="number of runs at a time (default: one per core)")
    add_config_flags(parser, [name for name in all_options() if name not in OF_ONE_RUN], own_rules=True)


def main(arguments: Namespace) -> int:
    from fedseq.report.convergence import by_dataset, compare, find_bound
    from fedseq.report.run_tables import best_table, comparison_table, grid_points
    from fedseq.runs.reading import Run, read, readable
    from fedseq.sweep.assignments import diverged, plan_grid, refuse_other_runs
    from fedseq.sweep.pool import read_jobs

    jobs = read_jobs(arguments.jobs)
    out = Path(arguments.out) if arguments.out else None
    grid = plan_grid(options_from(arguments), out, preset_from(arguments))
    assignments = list(grid.values)
    for assignment in assignments:
        refuse_other_runs(assignment)
    console = make_console()
    code = work_through_visibly(assignments, jobs, console)
    found = {assignment: read(assignment.folder) for assignment in assignments}
    runs, gone = readable(found.values()), {one.folder for one in assignments if diverged(one.folder)}
    datasets = by_dataset(runs)
    for dataset, members in datasets.items():
        bound = find_bound([run for run in members if run.folder not in gone])
        table = comparison_table(compare(members, bound), bound, diverged=gone)
        print_table(console, replace(table, title=dataset if len(datasets) > 1 else ""))
    varied = [
        (values, run)
        for assignment, values in grid.values.items()
        if isinstance(run := found[assignment], Run) and run.config.algorithm != "centralized"
    ]
    points = grid_points(varied, gone)
    root = assignments[0].folder.parent
    if grid.varied and points:
        print_table(console, best_table(points, grid.varied))
        if len(grid.varied) == 2 and any(point.final for point in points):
            from fedseq.report import figures

            console.print(f"heat map: {figures.heat_map(points, grid.varied, root / 'heatmap.png')}", markup=False)
    if runs:
        console.print(f"make a page of them with: fedseq report {root}", markup=False)
    return code
