"""Make one HTML page out of runs: curves, convergence, superclients, and how to repeat them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.cli.compare import add_comparison_arguments, bound_from, devices_from
from fedseq.cli.console import make_console

EXAMPLE = "fedseq report runs/demo -o report.html"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "-o", "--out", default="report.html", metavar="FILE", help="page to write (default: report.html)"
    )
    parser.add_argument("--force", action="store_true", help="also over a file that is not a report")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files into the run folders")
    add_comparison_arguments(parser)


def main(arguments: Namespace) -> None:
    from fedseq.report import page
    from fedseq.report.reading import broken, read_all, readable
    from fedseq.report.summary import summarise

    devices, bound = devices_from(arguments), bound_from(arguments)
    found = read_all(Path(name) for name in arguments.runs)
    written = page.write(Path(arguments.out), summarise(found, devices, bound), arguments.force)
    console = make_console()
    for folder in broken(found):
        console.print(f"not shown: {folder.folder}: {folder.reason}", markup=False)
    if arguments.tensorboard:
        from fedseq.report.tensorboard import export

        for run in readable(found):
            console.print(f"event files: {export(run.folder)}", markup=False)
    console.print(f"{len(readable(found))} runs in {written}, {written.stat().st_size / 1e6:.2f} MB", markup=False)
