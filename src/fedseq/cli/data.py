"""Download data sets, or list them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.options.datasets import CATALOG, FILE_SOURCES
from fedseq.report.formats import TextTable

EXAMPLE = "fedseq data get cifar10"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("get", "list"), help="get: download; list: what there is")
    parser.add_argument("name", nargs="?", metavar="NAME", help="data set to download")
    parser.add_argument("--to", metavar="DIR", help="folder to download into; by default in the cache")


def main(arguments: Namespace) -> None:
    console = make_console()
    if arguments.action == "list":
        columns = ("name", "what", "default model", "training", "test", "clients")
        rows = [[name, facts.title, facts.model, f"{facts.train:,}", f"{facts.test:,}" if facts.test else "held out",
                 str(facts.num_clients)] for name, facts in CATALOG.items()]  # fmt: skip
        rows += [[name, title, "", "", "", ""] for name, title in FILE_SOURCES.items()]
        print_table(console, TextTable(columns, rows, left=3))
        return
    if arguments.name is None:
        raise FedSeqError("which data set? Say: fedseq data get NAME. The names: fedseq data list")
    from fedseq.data.download import get_dataset

    with ConsoleReporter(console) as reporter:
        folder = get_dataset(arguments.name, Path(arguments.to) if arguments.to else None, reporter.stage)
    console.print(f"{arguments.name} is in {folder}", markup=False)
