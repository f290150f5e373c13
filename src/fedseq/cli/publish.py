"""Copy runs without their models, small enough for a repository."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.compare import runs_from
from fedseq.cli.console import make_console
from fedseq.report.costs import run_costs
from fedseq.runs.publishing import publish, refuse_unpublishable
from fedseq.runs.reading import broken, readable

EXAMPLE = """fedseq publish runs/cifar10 --to results/cifar10
  fedseq compare results/cifar10"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain them")
    parser.add_argument(
        "--to", required=True, metavar="DIR", help="folder for the copies, each in a folder of its own name"
    )


def main(arguments: Namespace) -> None:
    console = make_console()
    found = runs_from(arguments.runs)
    if damaged := broken(found):
        raise FedSeqError(
            f"{damaged[0].folder} is unreadable: {damaged[0].reason} Nothing was published. Name the runs without it."
        )
    runs = readable(found)
    refuse_unpublishable(runs, Path(arguments.to))
    for run in runs:
        place = publish(run, run_costs(run).seconds, Path(arguments.to))
        size = sum(file.stat().st_size for file in place.iterdir())
        console.print(f"{place}: {len(run.evaluations)} evaluations, {size / 1000:.0f} kB", markup=False)
