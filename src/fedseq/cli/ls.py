"""List run folders."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table

from fedseq.cli.console import make_console, print_table
from fedseq.errors import FedSeqError
from fedseq.results import find_runs, read_run

EXAMPLE = "fedseq ls runs"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", metavar="DIR", help="where to look (default: runs)")


def main(arguments: Namespace) -> None:
    parent = Path(arguments.folder)
    if arguments.folder != "runs" and not parent.is_dir():
        raise FedSeqError(f"there is no folder {parent}.")
    folders = find_runs(parent) if parent.is_dir() else []
    console = make_console()
    if not folders:
        console.print(f"no runs in {parent}/. Start one with: fedseq run", markup=False)
        return
    table = Table("run", "dataset", "alpha", "algorithm", "seed", "rounds", "accuracy", "state")
    for folder in folders:
        try:
            run = read_run(folder)
        except FedSeqError as error:
            table.add_row(str(folder), *[""] * 6, f"unreadable: {error}")
            continue
        config, final = run.config, run.final_accuracy()
        table.add_row(
            str(folder), config.dataset, f"{config.alpha:g}", config.algorithm, str(config.seed),
            f"{run.rounds}/{config.rounds}", "-" if final is None else f"{final:.2%}",
            "finished" if run.finished else "unfinished",
        )  # fmt: skip
    print_table(console, table)
