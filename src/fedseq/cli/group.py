"""Form superclients by one criterion or all, and show how good they are."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.cli import add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.config import resolve
from fedseq.configfile import coerce
from fedseq.errors import FedSeqError
from fedseq.results import new_folder

EXAMPLE = """fedseq group --dataset digits --alpha 0.2 --all
  fedseq group --dataset digits --method exchange
  fedseq group --dataset digits --all --pretrain-epochs 1,5,10,20"""

OPTIONS = (
    "dataset", "data_dir", "num_clients", "alpha", "partition", "exemplars", "augment", "model", "batch_size", "lr",
    "weight_decay", "approximator", "metric", "method", "min_samples", "max_clients", "confidence", "estimate", "seed",
    "engine", "workers", "ray_address", "device",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="try every valid criterion")
    parser.add_argument("--pretrain-epochs", default="10", metavar="E[,E...]", help="e, or a list (default: 10)")
    parser.add_argument("--out", metavar="DIR", help="folder for the results; giving it again reuses its pre-training")
    add_config_flags(parser, OPTIONS)


def main(arguments: Namespace) -> None:
    from fedseq import groupstudy
    from fedseq.paper.published import published_quality

    config = resolve(config_from(arguments))
    epochs = [coerce("pretrain_epochs", word) for word in str(arguments.pretrain_epochs).split(",")]
    if min(epochs) < 1:
        raise FedSeqError("--pretrain-epochs must be 1 or more.")
    console = make_console()
    with ConsoleReporter(console) as reporter:
        prepared = groupstudy.prepare(config, arguments.all, reporter)
        name = f"group-{config.dataset.replace(':', '-').replace('/', '-')}-alpha{config.alpha:g}"
        folder = Path(arguments.out) if arguments.out else new_folder(Path("runs"), name)
        study = groupstudy.study(prepared, epochs, folder, reporter)
    print_table(console, groupstudy.quality_table(study, published_quality))
    for path in groupstudy.write(study, folder):
        console.print(str(path), markup=False)
