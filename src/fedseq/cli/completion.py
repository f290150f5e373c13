"""Print a script that completes commands and options with Tab."""

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator

from fedseq.options.datasets import CATALOG

EXAMPLE = """fedseq completion bash > ~/.local/share/bash-completion/completions/fedseq
  fedseq completion fish > ~/.config/fish/completions/fedseq.fish
  eval "$(fedseq completion zsh)"       # as a line of ~/.zshrc"""
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="your shell")


def main(arguments: Namespace) -> None:
    from fedseq.cli import build_parser

    commands = _subparsers(build_parser())
    sys.stdout.write(_fish(commands) if arguments.shell == "fish" else _bash(commands, arguments.shell == "zsh"))


def _subparsers(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    return {name: sub for action in parser._actions if isinstance(action, _SubParsersAction)
            for name, sub in action.choices.items()}  # fmt: skip


def _names(parser: ArgumentParser) -> list[str]:
    """What may stand right after a command: its actions, or the choices of a word that it takes."""
    return [str(name) for action in parser._get_positional_actions() for name in action.choices or ()]


def _options(parser: ArgumentParser) -> Iterator[tuple[str, str, list[str]]]:
    """Every long option of a command and its actions: its name, its help and the values it may have."""
    for action in parser._actions:
        values = action.metavar.split("|") if isinstance(action.metavar, str) and "|" in action.metavar else []
        values = list(CATALOG) if action.dest == "config_dataset" else values
        for word in action.option_strings if action.help != SUPPRESS else ():
            if word.startswith("--"):
                yield word, (action.help or "").replace("%%", "%"), values
    for sub in _subparsers(parser).values():
        yield from _options(sub)


def _bash(commands: dict[str, ArgumentParser], zsh: bool) -> str:
    """All words are in the script itself: pressing Tab starts no Python. Without a match, file names are completed."""
    words = {name: [*_names(parser), *dict.fromkeys(option for option, _, _ in _options(parser))]
             for name, parser in commands.items()}  # fmt: skip
    values = {option: found for parser in commands.values() for option, _, found in _options(parser) if found}
    lines = [
        *(["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if zsh else []),
        "_fedseq() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" words=""',
        '    case "${COMP_WORDS[1]}" in',
        *(f'        {name}) words="{" ".join(found)}" ;;' for name, found in words.items()),
        "    esac",
        '    case "${COMP_WORDS[COMP_CWORD-1]}" in',
        *(f'        {option}) words="{" ".join(found)}" ;;' for option, found in values.items()),
        "    esac",
        f'    [ "$COMP_CWORD" -eq 1 ] && words="{" ".join(commands)} --help --version"',
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _fedseq fedseq",
    ]
    return "\n".join(lines) + "\n"


def _fish(commands: dict[str, ArgumentParser]) -> str:
    lines = []
    for name, parser in commands.items():
        lines.append(f"complete -c fedseq -n __fish_use_subcommand -f -a {name} -d {_quoted(parser.description)}")
        inside = f"complete -c fedseq -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{inside} -f -a {sub}" for sub in _names(parser)]
        for option, text, values in _options(parser):
            takes = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(f"{inside} -l {option[2:]} -d {_quoted(text)}{takes}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _quoted(text: str | None) -> str:
    first = (text or "").splitlines()[0] if text else ""
    return "'" + first.replace("\\", "\\\\").replace("'", "\\'") + "'"
