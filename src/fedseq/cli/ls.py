"""List run folders."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.console import make_console, print_table
from fedseq.report.formats import TextTable
from fedseq.runs.reading import Broken, find_runs, read

EXAMPLE = "fedseq ls runs"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", metavar="DIR", help="folder to look in (default: runs)")


def main(arguments: Namespace) -> None:
    parent = Path(arguments.folder)
    if arguments.folder != "runs" and not parent.is_dir():
        raise FedSeqError(f"there is no folder {parent}.")
    folders = find_runs(parent) if parent.is_dir() else []
    console = make_console()
    if not folders:
        console.print(f"no runs in {parent}/. Start one with: fedseq run", markup=False)
        return
    columns = ("run", "data set", "algorithm", "state", "alpha", "seed", "rounds", "accuracy")
    rows = []
    for run in map(read, folders):
        if isinstance(run, Broken):
            rows.append([str(run.folder), "", "", f"unreadable: {run.reason}", *[""] * 4])
            continue
        config, final = run.config, run.final_accuracy()
        rows.append([
            str(run.folder), config.dataset, config.algorithm, "finished" if run.finished else "unfinished",
            config.spread, str(config.seed), f"{run.rounds}/{config.rounds}",
            "-" if final is None else f"{final:.2%}",
        ])  # fmt: skip
    print_table(console, TextTable(columns, rows, left=4))
