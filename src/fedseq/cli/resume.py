"""Continue a run that was interrupted."""

from argparse import ArgumentParser, Namespace

from fedseq.cli import add_config_flags, add_trust, given_options
from fedseq.cli.run import run_with_progress
from fedseq.options.config import OPTIONS
from fedseq.options.option import Role

EXAMPLE = "fedseq resume runs/digits-fedseq-alpha0-seed0"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--restart", action="store_true", help="begin anew; what is there is kept in a folder inside")
    add_trust(parser, "the folder")
    add_config_flags(parser, [name for name, found in OPTIONS.items() if found.role is not Role.RESULT])


def main(arguments: Namespace) -> int:
    from fedseq.runs import experiment

    return run_with_progress(
        lambda reporter: experiment.resume(
            arguments.run,
            restart=arguments.restart,
            trust=arguments.trust,
            reporter=reporter,
            **given_options(arguments),
        )
    )
