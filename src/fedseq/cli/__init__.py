"""The command line. Help and parsing import nothing heavy; each command imports what it needs when it is called."""

import argparse
import importlib
import shlex
import sys
import warnings
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from fedseq import __version__
from fedseq.basics.errors import FedSeqError, harmless, is_out_of_memory, unknown
from fedseq.basics.stopping import INTERRUPTED, SAID
from fedseq.options.config import Config, all_options
from fedseq.options.config_files import read_preset, read_yaml, refuse_code
from fedseq.options.option import flag
from fedseq.options.resolve import resolve
from fedseq.runs.folder import CONFIG

FAILED = 1
MANY_FLAGS = 5
DEEPEST = 200  # levels of a path
METAVARS = {int: "N", float: "X", str: "NAME"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FedSeqError(f"{message}. See: {self.prog} --help")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """With the arguments of every command, or of this one, which is all that its own line needs."""
    modules = {name: importlib.import_module(f"fedseq.cli.{name}") for name in COMMANDS}
    summaries = {name: (module.__doc__ or "").strip() for name, module in modules.items()}
    listed = [
        f"{task}:\n" + "".join(f"  {name:12}{summaries[name].rstrip('.')}\n" for name in names)
        for task, names in BY_TASK.items()
    ]
    parser = _Parser(
        prog="fedseq",
        usage="fedseq COMMAND [OPTIONS]",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="\n".join(["Federated learning that works when every client's data is different.\n", *listed]),
        epilog="Start with: fedseq demo\nThen try:   fedseq run --dataset digits --rounds 30",
    )
    parser.add_argument("--version", action="version", version=f"fedseq {__version__}")
    commands = parser.add_subparsers(
        dest="command", prog="fedseq", metavar="COMMAND", parser_class=_Parser, help=argparse.SUPPRESS
    )
    for name, module in modules.items():
        command = commands.add_parser(
            name, description=summaries[name], epilog=f"example:\n  {module.EXAMPLE}",
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if only in (None, name):
            module.add_arguments(command)
    return parser


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """For a command whose first word is an action, each with arguments of its own."""

    class Strict(type(parser)):  # type: ignore[misc]
        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            """An option that an action does not know is told here, where its own options are known."""
            found, rest = super().parse_known_args(args, namespace)
            if rest and rest[0].startswith("--"):
                raise unknown_option(self, rest[0])
            return found, rest

    return parser.add_subparsers(dest="action", metavar="ACTION", parser_class=Strict, title="actions")


def add_action(actions: Any, name: str, summary: str, description: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=description, epilog=f"example:\n  {example}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    return parser


def add_config_flags(
    parser: argparse.ArgumentParser, only: Collection[str] | None = None, *, own_rules: bool = False
) -> None:
    """A flag for each option, in the sections of the config; what is not given is left to the file and the defaults.

    `own_rules` adds --rule, for the hyper-parameters of rules that are the user's own.
    """
    groups: dict[str, Any] = {}
    if only is None or len(only) > MANY_FLAGS:  # the line of usage would be a page
        words = (
            f"[{word.metavar}]" if word.nargs == "?" else word.metavar for word in parser._get_positional_actions()
        )
        parser.usage = " ".join(["%(prog)s", *map(str, words), "[OPTIONS]"])
    for name, found in all_options().items():
        if only is not None and name not in only:
            continue
        if found.section not in groups:
            groups[found.section] = parser.add_argument_group(found.section)
        groups[found.section].add_argument(
            found.flag, dest=f"config_{name}", default=argparse.SUPPRESS,
            metavar=found.metavar or "|".join(found.choices or ()) or METAVARS[found.kinds[0]],
            help=found.help_text(),
        )  # fmt: skip
    if own_rules:
        groups["algorithm"].add_argument(
            "--rule", dest="own_rules", action="append", default=[], metavar="RULE.NAME=VALUE",
            help="hyper-parameter of your own rule (--algorithm fedseq+package.module:rule)",
        )  # fmt: skip


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name[7:]: value for name, value in vars(arguments).items() if name.startswith("config_")}
    for word in getattr(arguments, "own_rules", ()):
        name, equals, value = word.partition("=")
        if not equals or "." not in name:
            raise FedSeqError(f"--rule takes RULE.NAME=VALUE, such as smoothed.keep=0.3, not '{word}'.")
        given[name] = value
    return given


def options_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given: flags over file."""
    given, file = given_options(arguments), getattr(arguments, "config", None)
    if file is None:
        return given
    from_file = {name.replace("-", "_"): value for name, value in read_yaml(Path(file)).items()}
    refuse_code(from_file, file, given, arguments.trust)
    return {**from_file, **given}


def add_trust(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--trust", action="store_true", help=f"run the code that {what} names (a model, a rule, a Ray cluster)"
    )


def add_config_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG.yaml", help="read options from a file (flags override it)")
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a preset (file and flags override it); `fedseq run --preset list` shows them",
    )
    add_trust(parser, "the file")


def preset_from(arguments: argparse.Namespace) -> dict[str, Any]:
    return read_preset(arguments.preset) if getattr(arguments, "preset", None) else {}


def config_from(arguments: argparse.Namespace) -> Config:
    """What was given over a preset, of which options that the run does not use are dropped."""
    return resolve(options_from(arguments), preset_from(arguments))


# A module each: its docstring says what it does, EXAMPLE shows it, `add_arguments` and `main` do it.
BY_TASK = {
    "every day": ("run", "resume", "compare", "report", "predict"),
    "more on runs and models": ("demo", "sweep", "ls", "watch", "evaluate", "export"),
    "data, superclients and privacy": ("data", "group", "privacy"),
    "real federations": ("federation",),
    "reproduction": ("paper", "publish"),
    "this machine": ("doctor", "completion"),
}
COMMANDS = tuple(name for names in BY_TASK.values() for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for an error in what was asked for, 1 when the machine fails (a full disk), 130 after a signal."""
    warnings.showwarning = _show_warning
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    parser = build_parser(words[0] if words and words[0] in COMMANDS else None)
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        _refuse_slips(words)
        arguments, rest = parser.parse_known_args(words)
        if rest:
            raise _unrecognized(parser, arguments, rest[0], words)
        if arguments.command is None:
            parser.print_help()
            return 0
        command = importlib.import_module(f"fedseq.cli.{arguments.command}")
        return command.main(arguments) or 0
    except FedSeqError as error:
        sys.stderr.write(f"fedseq: error: {harmless(str(error))}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(SAID)
        return INTERRUPTED
    except (MemoryError, RuntimeError, ImportError, SystemError) as error:
        if not is_out_of_memory(error):
            raise
        sys.stderr.write("fedseq: error: not enough memory. Use a smaller --batch-size. What was saved is intact.\n")
        return FAILED
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader of our output, such as `head`, has seen enough
            sys.stderr.close()
            return 0
        where = f" ({harmless(str(error.filename))})" if error.filename else ""
        sys.stderr.write(f"fedseq: error: {error.strerror or error}{where}. What was saved before is intact.\n")
        return FAILED


def _refuse_slips(words: Sequence[str]) -> None:
    """What nobody means: an unset variable of the shell, a ~ that the shell did not replace, a path without end."""
    for before, word in pairwise(["", *words]):
        name, equals, value = word.partition("=") if word.startswith("--") else (before, "", word)
        name = name if name.startswith("--") else "an argument"
        if (equals or not word) and not value:
            raise FedSeqError(f"{name} is empty, as if a variable of the shell were not set. Give it a value.")
        if equals and value.startswith("--"):
            raise FedSeqError(f"{name} has the value '{value}', which looks like an option. Give it another.")
        if value.startswith("~"):
            raise FedSeqError(f"{name} begins with ~, which the shell did not replace. Write the folder in full.")
        if value.count("/") > DEEPEST:
            raise FedSeqError(f"{name} has {value.count('/')} levels of folders. Give it a shorter path.")


def _unrecognized(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, word: str, words: Sequence[str]
) -> FedSeqError:
    if not word.startswith("--"):
        asked = f"fedseq {arguments.command}" if arguments.command else "fedseq"
        return FedSeqError(f"unexpected argument '{word}'. See: {asked} --help")
    if arguments.command is not None:
        parser = parser._subparsers._group_actions[0].choices[arguments.command]  # type: ignore[union-attr,index]
    if arguments.command == "resume" and word.split("=")[0] in ("--rule", *map(flag, all_options())):
        return _fixed_on_resume(arguments.run, word, words)
    return unknown_option(parser, word)


def unknown_option(parser: argparse.ArgumentParser, word: str) -> FedSeqError:
    names = (name for name in parser._option_string_actions if name.startswith("--"))
    return unknown("option", word.split("=")[0], names, see=f"{parser.prog} --help")


def _fixed_on_resume(run: str, word: str, words: Sequence[str]) -> FedSeqError:
    """`words` are all that was typed: a value in front of the run has been taken for it."""
    value = [] if "=" in word else [text for text in words[words.index(word) + 1 :][:1] if not text.startswith("--")]
    folder = next((text for text in (run, *words) if (Path(text) / CONFIG).is_file()), "RUN")
    again = shlex.join(["fedseq", "run", str(Path(folder) / CONFIG), word, *value, "--out", "OTHER"])
    return FedSeqError(f"{word.split('=')[0]} cannot change when a run is resumed. Begin another run with: {again}")


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    sys.stderr.write(f"fedseq: warning: {harmless(str(message))}\n")
