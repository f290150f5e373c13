"""Continue an interrupted run, or a finished one for more rounds."""

from argparse import ArgumentParser, Namespace

from fedseq.cli import add_config_flags, add_trust, given_options
from fedseq.cli.run import run_with_progress
from fedseq.options.config import OPTIONS
from fedseq.options.option import Role

EXAMPLE = "fedseq resume runs/digits-fedseq-alpha0-seed0"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument(
        "--restart", action="store_true", help="start again from round 0 (what is there is moved to a folder inside)"
    )
    add_trust(parser, "the folder")
    add_config_flags(parser, [name for name, found in OPTIONS.items() if found.role is not Role.RESULT])


def main(arguments: Namespace) -> int:
    from fedseq.api import experiment

    return run_with_progress(
        lambda reporter: experiment.resume(
            arguments.run,
            restart=arguments.restart,
            trust=arguments.trust,
            reporter=reporter,
            **given_options(arguments),
        )
    )
