"""Classify new pictures or arrays with a trained model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.basics.files import write_atomically
from fedseq.cli import add_config_flags, add_trust, given_options
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.report.formats import TextTable, to_csv
from fedseq.runs.folder import refuse_to_write

EXAMPLE = """fedseq predict runs/digits-fedseq-alpha0-seed0 new.npy
  fedseq predict runs/photos photo.png folder-of-pictures --csv classes.csv
  fedseq predict weights.safetensors photo.png"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder, or a weights.safetensors file of one")
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT",
        help="pictures, folders of pictures, or .npy and .npz files (array x, or the only one); pictures are resized",
    )  # fmt: skip
    parser.add_argument("--csv", metavar="FILE", help="write the table to a file, with all digits")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_argument(
        "--best", action="store_true", help="use the model of the best evaluation, which --patience keeps"
    )
    add_trust(parser, "the folder")
    add_config_flags(parser, ("model", "device"))


def main(arguments: Namespace) -> None:
    from fedseq.using import predict as prediction

    if arguments.csv:
        files = [Path(name) for name in (arguments.run, *arguments.inputs) if Path(name).is_file()]
        refuse_to_write(Path(arguments.csv), "--csv", arguments.force, files)
    console = make_console()
    with ConsoleReporter(console) as reporter:
        found = prediction.predict_run(
            arguments.run,
            *arguments.inputs,
            reporter=reporter,
            best=arguments.best,
            trust=arguments.trust,
            **given_options(arguments),
        )
    columns = ["input", "class", "probability"]
    if arguments.csv:
        write_atomically(Path(arguments.csv).resolve(), to_csv(columns, found).encode())  # not over a link to the file
        console.print(f"{len(found)} inputs classified in {arguments.csv}", markup=False)
        return
    rows = [[name, class_name, f"{probability:.4f}"] for name, class_name, probability in found]
    print_table(console, TextTable(columns, rows, left=2))
