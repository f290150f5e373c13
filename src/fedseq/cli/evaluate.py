"""Evaluate a run's trained model on its test set."""

from argparse import ArgumentParser, Namespace

from rich.table import Table

from fedseq.cli import add_config_flags, given_options
from fedseq.cli.console import ConsoleReporter, make_console, print_table

EXAMPLE = "fedseq evaluate runs/digits-fedseq-seed0"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    add_config_flags(parser, ("data_dir", "device"), defaults=False)


def main(arguments: Namespace) -> None:
    from fedseq import trained

    console = make_console()
    with ConsoleReporter(console) as reporter:
        evaluation, class_names = trained.evaluate_run(arguments.run, reporter=reporter, **given_options(arguments))
    console.print(f"accuracy {evaluation.accuracy:.4f}  loss {evaluation.loss:.4f}", markup=False)
    table = Table("class", "accuracy")
    for name, accuracy in zip(class_names, evaluation.per_class, strict=True):
        table.add_row(name, "-" if accuracy is None else f"{accuracy:.4f}")
    print_table(console, table)
