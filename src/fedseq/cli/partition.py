"""Show who holds what: how the data is dealt to clients, or what those that exist have."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedseq.cli import add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.report.formats import TextTable, check_picture
from fedseq.runs.folder import refuse_to_write

if TYPE_CHECKING:
    import numpy as np

EXAMPLE = """fedseq partition --dataset digits --alpha 0.2 --num-clients 50
  fedseq partition --dataset csv:visits.csv --clients-by patient"""
OPTIONS = (
    "dataset", "data_dir", "clients_by", "label_column", "holdout", "holdout_by", "num_clients", "alpha", "partition",
    "seed",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--figure", metavar="FILE", help="picture to write (default: partition.png, -2, -3, ...)")
    parser.add_argument("--force", action="store_true", help="draw also over a file that exists")
    parser.add_argument("--csv", action="store_true", help="print a line for each client: examples of each class")
    add_config_flags(parser, OPTIONS)


def main(arguments: Namespace) -> None:
    import sys

    from fedseq.data.partition import label_counts
    from fedseq.report import figures
    from fedseq.report.formats import to_csv
    from fedseq.runs.assembly import deal, read_dataset

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
