"""Show how the data is dealt to clients."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table

from fedseq.cli import add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.config import known, resolve

EXAMPLE = "fedseq partition --dataset digits --alpha 0.2 --num-clients 50"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--figure", metavar="FILE", help="picture to write (default: partition.png, -2, -3, ...)")
    add_config_flags(parser, ("dataset", "data_dir", "num_clients", "alpha", "partition", "seed"))


def main(arguments: Namespace) -> None:
    import numpy as np

    from fedseq import seeds
    from fedseq.data import load_dataset
    from fedseq.data.partition import label_counts, partition_clients
    from fedseq.report import figures

    config = resolve(config_from(arguments))
    console = make_console()
    with ConsoleReporter(console) as reporter:
        dataset = load_dataset(config.dataset, Path(config.data_dir) if config.data_dir else None, reporter.stage)
    rng = seeds.generator(config.seed, "partition")
    clients = partition_clients(dataset.y_train, known(config.num_clients), config.alpha, rng, config.partition)
    counts = label_counts(dataset.y_train, clients, dataset.num_classes)
    title = f"{config.dataset}, alpha {config.alpha:g}, {config.partition}, {len(clients)} clients, seed {config.seed}"
    sizes, distinct = counts.sum(1), (counts > 0).sum(1)
    table = Table("", "min", "mean", "max", title=title, title_justify="left")
    for name, values in (("examples per client", sizes), ("classes per client", distinct)):
        table.add_row(name, str(values.min()), f"{values.mean():.2f}", str(values.max()))
    largest = counts.max(1) / np.maximum(sizes, 1)
    table.add_row("share of the largest class", f"{largest.min():.2f}", f"{largest.mean():.2f}", f"{largest.max():.2f}")
    print_table(console, table)
    path = Path(arguments.figure) if arguments.figure else _unused("partition", ".png")
    figures.partition(counts, dataset.class_names, path, title)
    console.print(f"picture: {path}", markup=False)


def _unused(stem: str, suffix: str) -> Path:
    """A file of the user's is never overwritten unless it was named."""
    number = 1
    while (path := Path(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}")).exists():
        number += 1
    return path
