"""The command that repeats a run."""

import shlex
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config, role_of
from fedseq.options.config_files import own_text
from fedseq.options.option import Role, flag
from fedseq.options.resolve import resolve

FIRST = ("dataset", "algorithm", "alpha", "seed", "rounds")


def defaults(config: Config, *beside: str) -> dict[str, Any]:
    """The options of a run for which nothing but data set, algorithm, alpha and those beside had been asked for."""
    asked = {name: getattr(config, name) for name in ("dataset", "algorithm", "alpha", *beside)}
    try:
        return resolve(asked, lenient=True).options()
    except FedSeqError:  # made in Python with names of its own
        return {}


def options(config: Config) -> dict[str, Any]:
    """The options that differ from the defaults of the config's data set and algorithm, and change what comes out."""
    base, used = defaults(config), config.options()
    differing = [name for name, value in used.items() if value not in (None, base.get(name))]
    names = [*FIRST, *(name for name in differing if name not in FIRST and role_of(name) is not Role.PLACE)]
    return {name: used[name] for name in names if used.get(name) is not None}


def command(config: Config) -> str | None:
    """None for a run made in Python, which no command can repeat."""
    if config.dataset == "own":
        return None
    words = [word for name, value in options(config).items() for word in _words(name, value)]
    return shlex.join(["fedseq", "run", *words])


def _words(name: str, value: Any) -> tuple[str, str]:
    return ("--rule", f"{name}={own_text(value)}") if "." in name else (flag(name), _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
