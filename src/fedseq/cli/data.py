"""Download data sets, or list them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table

from fedseq.catalog import CATALOG, FILE_SOURCES
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.errors import FedSeqError

EXAMPLE = "fedseq data get cifar10"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("get", "list"), help="get: download; list: what there is")
    parser.add_argument("name", nargs="?", metavar="NAME", help="data set to download")
    parser.add_argument("--to", metavar="DIR", help="folder to download into; by default in the cache")


def main(arguments: Namespace) -> None:
    console = make_console()
    if arguments.action == "list":
        table = Table("name", "what", "training", "test", "default model", "clients")
        for name, facts in CATALOG.items():
            table.add_row(name, facts.title, f"{facts.train:,}", f"{facts.test:,}", facts.model, str(facts.num_clients))
        for name, title in FILE_SOURCES.items():
            table.add_row(name, title, "", "", "", "")
        print_table(console, table)
        return
    if arguments.name is None:
        raise FedSeqError("which data set? Say: fedseq data get NAME. The names: fedseq data list")
    from fedseq.data.download import get_dataset

    with ConsoleReporter(console) as reporter:
        folder = get_dataset(arguments.name, Path(arguments.to) if arguments.to else None, reporter.stage)
    console.print(f"{arguments.name} is in {folder}", markup=False)
