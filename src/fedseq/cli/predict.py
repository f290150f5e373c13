"""Classify new inputs with a run's trained model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table

from fedseq.cli import add_config_flags, given_options
from fedseq.cli.console import ConsoleReporter, make_console, print_table

EXAMPLE = "fedseq predict runs/digits-fedseq-seed0 new.npy"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("file", metavar="FILE", help="a picture, or an .npy / .npz array (key x) of inputs")
    add_config_flags(parser, ("data_dir", "device"), defaults=False)


def main(arguments: Namespace) -> None:
    from fedseq import trained

    console = make_console()
    with ConsoleReporter(console) as reporter:
        predictions = trained.predict_run(
            arguments.run, Path(arguments.file), reporter=reporter, **given_options(arguments)
        )
    table = Table("input", "class", "probability")
    for number, (name, probability) in enumerate(predictions):
        table.add_row(str(number), name, f"{probability:.4f}")
    print_table(console, table)
