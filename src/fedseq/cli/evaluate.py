"""Evaluate a trained model on its test set or on your labelled data."""

from argparse import ArgumentParser, Namespace

from fedseq.cli import add_config_flags, add_trust, given_options
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.report.formats import TextTable

EXAMPLE = """fedseq evaluate runs/digits-fedseq-alpha0-seed0
  fedseq evaluate runs/photos --data folder:more-photos"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--best", action="store_true", help="use the model of the best evaluation, which --patience keeps"
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or with --data a weights.safetensors file of one")
    parser.add_argument(
        "--data",
        metavar="SOURCE",
        help="your labelled examples: npz:FILE (arrays x and y), folder:DIR (DIR/CLASS/*) or parquet:FILE",
    )
    add_trust(parser, "the folder")
    add_config_flags(parser, ("data_dir", "model", "device"))


def main(arguments: Namespace) -> None:
    from fedseq.training.evaluation import client_spread
    from fedseq.using import predict as prediction

    console = make_console()
    with ConsoleReporter(console) as reporter:
        evaluation, class_names = prediction.evaluate_run(
            arguments.run,
            reporter,
            data=arguments.data,
            best=arguments.best,
            trust=arguments.trust,
            **given_options(arguments),
        )
    console.print(f"accuracy {evaluation.accuracy:.4f}  loss {evaluation.loss:.4f}", markup=False)
    if evaluation.per_client:
        words = ("mean", "median", "worst_decile", "std")
        found = client_spread(evaluation.per_client)
        shown = ", ".join(f"{word.replace('_', ' ')} {found[f'client_{word}']:.4f}" for word in words)
        console.print(f"over {len(evaluation.per_client)} clients: {shown}", markup=False)
    pairs = zip(class_names, evaluation.per_class, strict=True)
    rows = [[name, "-" if accuracy is None else f"{accuracy:.4f}"] for name, accuracy in pairs]
    print_table(console, TextTable(["class", "accuracy"], rows))
