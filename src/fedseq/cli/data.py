"""List and download data sets; show which client holds what."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedseq.basics.errors import FedSeqError
from fedseq.cli import add_action, add_actions, add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.options.datasets import CATALOG, FILE_SOURCES
from fedseq.report.formats import TextTable, check_picture
from fedseq.runs.folder import refuse_to_write

if TYPE_CHECKING:
    import numpy as np

EXAMPLE = """fedseq data list
  fedseq data get cifar10
  fedseq data show --dataset csv:visits.csv --clients-by patient"""
OPTIONS = (
    "dataset", "data_dir", "clients_by", "label_column", "holdout", "holdout_by", "num_clients", "alpha", "partition",
    "authors_code", "seed",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    actions = add_actions(parser)
    add_action(actions, "list", "list the data sets", "List the data sets and their defaults.", "fedseq data list")
    get = add_action(actions, "get", "download a data set", "Download a data set.", "fedseq data get cifar10 --to data")
    get.add_argument("name", metavar="NAME", help="data set to download")
    get.add_argument("--to", metavar="DIR", help="folder to download into (default: in the cache)")
    show = add_action(
        actions, "show", "show which client holds what",
        "Show how many examples of each class every client holds, as a table and a picture.",
        "fedseq data show --dataset digits --alpha 0.2 --num-clients 50\n"
        "  fedseq data show --dataset csv:visits.csv --clients-by patient",
    )  # fmt: skip
    show.add_argument("--figure", metavar="FILE", help="picture to write (default: partition.png, -2, -3, ...)")
    show.add_argument("--force", action="store_true", help="overwrite --figure")
    show.add_argument("--csv", action="store_true", help="print a line for each client: its examples of each class")
    add_config_flags(show, OPTIONS)


def main(arguments: Namespace) -> None:
    if arguments.action is None:
        raise FedSeqError("which action? fedseq data list, get NAME, or show. See: fedseq data --help")
    {"list": list_datasets, "get": get, "show": show}[arguments.action](arguments)


def list_datasets(arguments: Namespace) -> None:
    columns = ("name", "what", "default model", "training", "test", "clients")
    rows = [[name, facts.title, facts.model, f"{facts.train:,}", f"{facts.test:,}" if facts.test else "held out",
             str(facts.num_clients)] for name, facts in CATALOG.items()]  # fmt: skip
    rows += [[name, title, "", "", "", ""] for name, title in FILE_SOURCES.items()]
    print_table(make_console(), TextTable(columns, rows, left=3))


def get(arguments: Namespace) -> None:
    from fedseq.data.download import get_dataset

    console = make_console()
    with ConsoleReporter(console) as reporter:
        folder = get_dataset(arguments.name, Path(arguments.to) if arguments.to else None, reporter.stage)
    console.print(f"{arguments.name} is in {folder}", markup=False)


def show(arguments: Namespace) -> None:
    import sys

    from fedseq.data.partition import label_counts
    from fedseq.report import figures
    from fedseq.report.formats import to_csv
    from fedseq.rounds.prepare import deal, read_dataset

    config = config_from(arguments)
    path = Path(arguments.figure) if arguments.figure else _unused("partition", ".png")
    check_picture(path)
    refuse_to_write(path, "--figure", arguments.force)
    console = make_console(stderr=arguments.csv)
    with ConsoleReporter(console) as reporter:
        dataset = read_dataset(config, reporter)
    clients = deal(config, dataset)
    counts = label_counts(dataset.y_train, clients, dataset.num_classes)
    names = dataset.owners.names if dataset.owners else tuple(map(str, range(len(clients))))
    made = config.spread if config.real_clients else f"alpha {config.alpha:g}, {config.partition}"
    title = f"{config.dataset}, {made}, {len(clients)} clients, seed {config.seed}"
    tested = f"; {len(dataset.y_test)} examples to test with"
    if dataset.owners is not None and len(dataset.owners.test):
        held_out = len(names) - len(clients)
        tested += f", of {held_out} clients that nobody trains on" if held_out else ", of the same clients"
    if arguments.csv:
        columns = ["client", *dataset.class_names]
        sys.stdout.write(to_csv(columns, [[name, *row] for name, row in zip(names, counts.tolist(), strict=False)]))
    else:
        print_table(console, TextTable(["", "min", "mean", "max"], measures(counts), title + tested))
    figures.partition(counts, dataset.class_names, path, title)
    console.print(f"picture: {path}", markup=False)


def measures(counts: "np.ndarray") -> Sequence[Sequence[str]]:
    """Of [clients, classes] examples: how many, of how many classes, how evenly."""
    import numpy as np

    sizes, distinct = counts.sum(1), (counts > 0).sum(1)
    share = counts / np.maximum(sizes, 1)[:, None]
    entropy = -(share * np.log2(np.where(share > 0, share, 1))).sum(1)
    whole = ([name, str(values.min()), f"{values.mean():.2f}", str(values.max())]
             for name, values in (("examples per client", sizes), ("classes per client", distinct)))  # fmt: skip
    shares = ([name, *(f"{value + 0.0:.2f}" for value in (values.min(), values.mean(), values.max()))]
              for name, values in (("share of the largest class", share.max(1)),
                                   (f"entropy in bits, of {np.log2(counts.shape[1]):.2f}", entropy)))  # fmt: skip
    return [*whole, *shares]


def _unused(stem: str, suffix: str) -> Path:
    """A file of the user's is never overwritten unless it was named."""
    number = 1
    while (path := Path(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}")).exists():
        number += 1
    return path
