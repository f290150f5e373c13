"""Continue a run that was interrupted."""

from argparse import ArgumentParser, Namespace

from fedseq.cli import add_config_flags, given_options
from fedseq.cli.run import watch
from fedseq.config import FREE_TO_CHANGE

EXAMPLE = "fedseq resume runs/digits-fedseq-seed0"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    add_config_flags(parser, sorted(FREE_TO_CHANGE), defaults=False)


def main(arguments: Namespace) -> int:
    from fedseq import experiment

    return watch(lambda reporter: experiment.resume(arguments.run, reporter=reporter, **given_options(arguments)))
