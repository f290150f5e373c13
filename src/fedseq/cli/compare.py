"""Compare runs: accuracy, rounds to a target, speedup, cost."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.console import make_console, print_table
from fedseq.options.config_files import read_number
from fedseq.options.option import AT_LEAST_0, AT_LEAST_1, SHARE, flag
from fedseq.report.convergence import all_costs, by_dataset, compare, find_bound
from fedseq.report.costs import AS_RECORDED, AXES, ROUND, describe_clients
from fedseq.report.formats import check_picture, to_latex, to_markdown
from fedseq.report.run_tables import budget_table, comparison_csv, comparison_table, cost_table
from fedseq.runs.folder import RunFolder, refuse_to_write
from fedseq.runs.reading import Broken, Run, broken, read_all, readable
from fedseq.simulation.clock import WhatIf

EXAMPLE = """fedseq compare runs/demo --figure curves.png
  fedseq compare runs/demo --csv > comparison.csv"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain them")
    parser.add_argument(
        "--at",
        metavar="ROUND",
        help="also compare at this round, and at the simulated time in which the slowest reaches it",
    )
    parser.add_argument("--figure", metavar="FILE", help="draw the curves into this .png, .pdf or .svg file")
    parser.add_argument("--force", action="store_true", help="overwrite --figure")
    parser.add_argument(
        "--over",
        choices=tuple(AXES),
        help="x axis of the curves: rounds (default), client updates, bytes sent, simulated time or privacy (epsilon)",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--csv", action="store_true", help="print one line per algorithm and target, with all digits")
    written.add_argument("--latex", action="store_true", help="print the tables as LaTeX (booktabs)")
    written.add_argument("--markdown", action="store_true", help="print the tables as Markdown (the default on a pipe)")
    add_comparison_arguments(parser)


def add_comparison_arguments(parser: ArgumentParser) -> None:
    """What `compare`, `report` and `watch` take."""
    parser.add_argument("--bound", metavar="ACC", help="centralized accuracy (0..1) of which the targets are shares")
    group = parser.add_argument_group("simulated time, instead of what each run's own options say")
    group.add_argument("--client-speed", metavar="STEPS", help="SGD steps per second of the median client")
    group.add_argument("--bandwidth", metavar="BYTES", help="bytes per second that a client sends or receives")
    group.add_argument(
        "--speed-spread",
        metavar="SIGMA",
        help="standard deviation of the logarithm of the clients' speeds (0: all alike)",
    )


def what_if_from(arguments: Namespace) -> WhatIf:
    names = ("client_speed", "bandwidth", "speed_spread")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return WhatIf(**{name: read_number(flag(name), value, AT_LEAST_0) for name, value in given.items()})


def bound_from(arguments: Namespace) -> float | None:
    return None if arguments.bound is None else read_number("--bound", arguments.bound, SHARE)


def other_test_sets(runs: Sequence[Run]) -> str | None:
    """On own data only those who need exemplars take them out of the test set."""
    short = {run.config.algorithm for run in runs if run.config.options().get("exemplars")}
    whole = {run.config.algorithm for run in runs} - short
    if not short or not whole:
        return None
    return (
        f"note: {', '.join(sorted(short))} took exemplars out of the test set, {', '.join(sorted(whole))} did not, "
        "so accuracies are over slightly different examples."
    )


def runs_from(names: Sequence[str]) -> list[Run | Broken]:
    """What is in these folders. A name that leads nowhere is a mistake, and so are folders without a readable run."""
    found = read_all(Path(name) for name in names)
    missing = [one for one in broken(found) if not one.folder.exists()]
    if missing or not readable(found):
        first = (missing or broken(found))[0]
        if missing or not RunFolder(first.folder).holds_run:
            raise FedSeqError(f"{first.folder}: {first.reason} List the runs you have with: fedseq ls")
        raise FedSeqError(f"{first.folder} is unreadable: {first.reason}")
    return found


def main(arguments: Namespace) -> None:
    what_if, given = what_if_from(arguments), bound_from(arguments)
    at = None if arguments.at is None else read_number("--at", arguments.at, AT_LEAST_1, int)
    if arguments.over and not arguments.figure:
        raise FedSeqError("--over is for the curves: give --figure FILE too.")
    if arguments.figure:
        check_picture(Path(arguments.figure))
        refuse_to_write(Path(arguments.figure), "--figure", arguments.force)
    found = runs_from(arguments.runs)
    runs = readable(found)
    console = make_console()
    datasets = by_dataset(runs)
    bounds = {dataset: find_bound(members, given) for dataset, members in datasets.items()}
    rows = {dataset: compare(members, bounds[dataset], what_if) for dataset, members in datasets.items()}
    if arguments.csv:
        sys.stdout.write(comparison_csv([row for members in rows.values() for row in members]))
    for number, (dataset, bound) in enumerate(bounds.items() if not arguments.csv else ()):
        tables = [comparison_table(rows[dataset], bound, broken(found) if number == 0 else ())]
        tables += [cost_table(rows[dataset], describe_clients(datasets[dataset], what_if))] if bound else []
        if at is not None:
            tables.append(budget_table(datasets[dataset], all_costs(datasets[dataset], what_if), at))
        for table in tables:
            if arguments.latex or arguments.markdown:
                titled = replace(table, title=dataset)
                sys.stdout.write((to_latex if arguments.latex else to_markdown)(titled) + "\n")
            else:
                print_table(console, replace(table, title=dataset if len(datasets) > 1 else ""))
    notes = make_console(stderr=arguments.csv or arguments.latex or arguments.markdown)
    for folder in broken(found):
        notes.print(f"{folder.folder} is unreadable: {folder.reason}", markup=False)
    if what_if != AS_RECORDED and (fixed := [str(run.folder) for run in runs if run.published]):
        told = f"published without their clients, so that others cannot be tried: {', '.join(fixed)}"
        notes.print(f"note: {told}", markup=False)
    for members in datasets.values():
        if doubt := other_test_sets(members):
            notes.print(doubt, markup=False)
    if arguments.figure:
        from fedseq.report.figures import curves

        # Targets are shares of one data set's bound; over several sets only a given one is meant for all.
        common = find_bound(runs, given) if given is not None or len(datasets) == 1 else None
        drawn = curves(runs, Path(arguments.figure), common, arguments.over or ROUND, what_if)
        notes.print(f"curves: {drawn}", markup=False)
