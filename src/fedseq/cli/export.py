"""Export a trained model to ONNX or TorchScript."""

from argparse import ArgumentParser, Namespace

from fedseq.cli import add_config_flags, add_trust, given_options
from fedseq.cli.console import make_console

EXAMPLE = """fedseq export runs/digits-fedseq-alpha0-seed0 --format onnx
  fedseq export runs/digits-fedseq-alpha0-seed0 --format torchscript --out digits.pt"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        f"{__doc__}\n\nThe file takes a batch named x, pictures as uint8 pixels [n, channels, height, width], scales\n"
        "it itself, and gives a number for each class before any softmax. Its metadata names the classes. It is\n"
        "read back and compared with the model."
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or a weights.safetensors file of one")
    parser.add_argument(
        "--best", action="store_true", help="use the model of the best evaluation, which --patience keeps"
    )
    parser.add_argument("--format", default="onnx", metavar="onnx|torchscript", help="file format (default: onnx)")
    parser.add_argument("--out", metavar="FILE", help="file to write (default: model.onnx or model.pt in the folder)")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    add_trust(parser, "the folder")
    add_config_flags(parser, ("model",))


def main(arguments: Namespace) -> None:
    from fedseq.using.export import export_run

    made = export_run(
        arguments.run, arguments.format, arguments.out, best=arguments.best, overwrite=arguments.force,
        trust=arguments.trust, **given_options(arguments),
    )  # fmt: skip
    make_console().print(
        f"{made.file}: {made.file.stat().st_size / 1e6:.2f} MB; read back, its outputs differ from the model's by at "
        f"most {made.largest_difference:.1g}",
        markup=False,
    )
