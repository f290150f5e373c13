"""Write an HTML report of runs: curves, convergence, superclients."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.compare import add_comparison_arguments, bound_from, runs_from, what_if_from
from fedseq.cli.console import make_console
from fedseq.options.grammar import trackers_of
from fedseq.runs.folder import RunFolder

EXAMPLE = "fedseq report runs/demo -o report.html"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain them")
    parser.add_argument(
        "-o", "--out", default="report.html", metavar="FILE", help="page to write (default: report.html)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite a file that is not a report")
    parser.add_argument(
        "--track", default="none", metavar="NAMES",
        help="also write the runs for a tracker, such as tensorboard, into the folder `tracking` of each run",
    )  # fmt: skip
    add_comparison_arguments(parser)


def main(arguments: Namespace) -> None:
    from fedseq.report import page
    from fedseq.report.page import summarise
    from fedseq.runs.reading import broken, readable

    trackers = trackers_of(arguments.track)
    what_if, bound = what_if_from(arguments), bound_from(arguments)
    found = runs_from(arguments.runs)
    for run in readable(found) if trackers else []:
        if run.published:
            raise FedSeqError(
                f"{run.folder} is a published run, and --track would write into it. Track the run that it is a copy of."
            )
    written = page.write(Path(arguments.out), summarise(found, what_if, bound), arguments.force)
    console = make_console()
    for folder in broken(found):
        console.print(f"not shown: {folder.folder}: {folder.reason}", markup=False)
    for run in readable(found) if trackers else []:
        from fedseq import tracking

        tracking.check_installed(replace(run.config, track=arguments.track))
        where = RunFolder(run.folder).tracking
        tracking.export(trackers, run.config, where, run.metrics, run.finished)
        console.print(f"tracked: {where}", markup=False)
    count = len(readable(found))
    console.print(
        f"{count} run{'s' if count != 1 else ''} in {written}, {written.stat().st_size / 1e6:.2f} MB", markup=False
    )
