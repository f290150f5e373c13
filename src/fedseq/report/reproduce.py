"""The command that repeats a run."""

import shlex
from typing import Any

from fedseq.config import FIELDS, Config, flag, resolve
from fedseq.configfile import from_mapping
from fedseq.errors import FedSeqError

FIRST = ("dataset", "algorithm", "alpha", "seed", "rounds")
# They do not change what is computed.
NOT_TOLD = ("engine", "workers", "ray_address", "device", "data_dir", "checkpoint_every", "memory_limit")


def defaults(config: Config) -> Config:
    """What a config would be if nothing but its data set, algorithm and alpha had been asked for."""
    asked = {name: getattr(config, name) for name in ("dataset", "algorithm", "alpha")}
    try:
        return resolve(from_mapping(asked))
    except FedSeqError:  # made in Python with names of its own
        return Config()


def options(config: Config) -> dict[str, Any]:
    """The options that differ from the defaults of the config's data set and algorithm."""
    base = defaults(config)
    differing = [name for name in FIELDS if getattr(config, name) not in (None, getattr(base, name))]
    names = [*FIRST, *(name for name in differing if name not in FIRST and name not in NOT_TOLD)]
    return {name: getattr(config, name) for name in names if getattr(config, name) is not None}


def command(config: Config) -> str | None:
    """None for a run made in Python, which no command can repeat."""
    if config.dataset == "own":
        return None
    words = [word for name, value in options(config).items() for word in (flag(name), _text(value))]
    return shlex.join(["fedseq", "run", *words])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
