"""The command line. Help and parsing import nothing heavy; each command imports what it needs when it is called."""

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedseq.config import FIELDS, Config, flag, sections
from fedseq.configfile import from_mapping, option_types, read_yaml
from fedseq.errors import FedSeqError, unknown
from fedseq.version import VERSION

FAILED = 1
INTERRUPTED = 130
METAVARS = {int: "N", float: "X", str: "NAME", bool: "true|false"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FedSeqError(f"{message}. See: {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedseq",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Federated learning that works when every client's data is different.",
        epilog="Start with: fedseq demo\nThen try:   fedseq run --dataset digits --algorithm fedseq --rounds 30",
    )
    parser.add_argument("--version", action="version", version=f"fedseq {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name in COMMANDS:
        module = importlib.import_module(f"fedseq.cli.{name}")
        summary = (module.__doc__ or "").strip()
        command = commands.add_parser(
            name, help=summary.rstrip("."), description=summary, epilog=f"example:\n  {module.EXAMPLE}",
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(command)
    return parser


def add_config_flags(
    parser: argparse.ArgumentParser, only: Sequence[str] = tuple(FIELDS), defaults: bool = True
) -> None:
    """A flag for each option, in the sections of the config; what is not given is left to the file and the defaults."""
    for section in sections():
        names = [name for name in only if FIELDS[name].metadata["section"] == section]
        group = parser.add_argument_group(f"{section} options") if names else None
        for name in names:
            field = FIELDS[name]
            choices = field.metadata["choices"]
            kinds = option_types(name)
            bare: dict[str, Any] = {"nargs": "?", "const": "true"} if bool in kinds else {}
            default = "" if field.default is None or not defaults else f" (default: {field.default})"
            group.add_argument(  # type: ignore[union-attr]
                flag(name), dest=f"config_{name}", default=argparse.SUPPRESS,
                metavar="|".join(choices) if choices else METAVARS[kinds[0]],
                help=field.metadata["help"] + default, **bare,
            )  # fmt: skip


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name[7:]: value for name, value in vars(arguments).items() if name.startswith("config_")}


def config_from(arguments: argparse.Namespace) -> Config:
    """Flags over file over defaults."""
    file = getattr(arguments, "config", None)
    return from_mapping({**(read_yaml(Path(file)) if file else {}), **given_options(arguments)})


# A module each: its docstring says what it does, EXAMPLE shows it, `add_arguments` and `main` do it.
COMMANDS = (
    "demo", "run", "resume", "sweep", "ls", "compare", "report", "watch", "evaluate", "predict", "partition", "group",
    "data", "paper", "federation",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for an error in what was asked for, 1 when the machine fails (a full disk), 130 after Ctrl-C."""
    warnings.showwarning = _show_warning
    parser = build_parser()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        arguments, rest = parser.parse_known_args(words)
        if rest:
            raise _unrecognized(parser, arguments, rest[0])
        if arguments.command is None:
            parser.print_help()
            return 0
        command = importlib.import_module(f"fedseq.cli.{arguments.command}")
        return command.main(arguments) or 0
    except FedSeqError as error:
        sys.stderr.write(f"fedseq: error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            return 0
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"fedseq: error: {error.strerror or error}{where}. What was saved before is intact.\n")
        return FAILED


def _unrecognized(parser: argparse.ArgumentParser, arguments: argparse.Namespace, word: str) -> FedSeqError:
    if not word.startswith("--"):
        return FedSeqError(f"unexpected argument '{word}'. See: fedseq {arguments.command or ''} --help")
    command = parser._subparsers._group_actions[0].choices[arguments.command]  # type: ignore[union-attr,index]
    return unknown("option", word.split("=")[0], (o for o in command._option_string_actions if o.startswith("--")))


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    sys.stderr.write(f"fedseq: warning: {message}\n")
