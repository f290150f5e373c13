"""Show the help of fedseq or of one of its commands."""

from argparse import ArgumentParser, Namespace

EXAMPLE = "fedseq help run"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="COMMAND", help="a command; without one, all of them are listed")


def main(arguments: Namespace) -> None:
    from fedseq.basics.errors import unknown
    from fedseq.cli import COMMANDS, build_parser

    if arguments.topic is None:
        build_parser().print_help()
    elif arguments.topic in COMMANDS:
        build_parser().parse_args([arguments.topic, "--help"])
    else:
        raise unknown("command", arguments.topic, COMMANDS)
