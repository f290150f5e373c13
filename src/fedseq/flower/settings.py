"""A federation's run-config: the options of any run, and what only a federation needs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedseq.config import Config, resolve
from fedseq.configfile import from_mapping
from fedseq.errors import FedSeqError


@dataclass(frozen=True)
class Settings:
    out: str = ""  # the server's run folder
    hop_deadline: float = 600.0  # seconds after which a hop is given up
    wait: float = 600.0  # seconds to wait for all clients before the first round
    server_data: str = ""  # the server's labelled examples, where clients bring data of their own
    keys: str = ""  # folder with node-K.pub of every client K; without it a node is believed who it says it is
    memory_dir: str = ""  # where clients keep their memory, unless their node config says


# What a federation does unless told otherwise: trust nobody's update, and be ready to be killed after any round.
DEFAULTS = {"gate": True, "checkpoint_every": 1}
ENGINE = "flower"


def read_run_config(run_config: Mapping[str, Any]) -> tuple[Config, Settings]:
    """The resolved config and the settings; what is wrong with them is told before any client is asked for work."""
    given = {name.replace("-", "_"): value for name, value in run_config.items()}
    own = {field.name: given.pop(field.name) for field in fields(Settings) if field.name in given}
    settings = Settings(**{name: _checked(name, value) for name, value in own.items()})
    config = resolve_federation(given, own_data=bool(settings.server_data))
    return replace(config, engine=ENGINE, workers=None), settings


def resolve_federation(given: Mapping[str, Any], own_data: bool) -> Config:
    """A federation's options with its defaults; where clients bring their data, those of a user's own files."""
    chosen = {name: value for name, value in given.items() if value not in (None, "null")}
    config = resolve(from_mapping({**DEFAULTS, **chosen, **({"dataset": "npz:own"} if own_data else {})}))
    if config.attack is not None:
        raise FedSeqError("attackers are simulated, and clients of a federation are real. Use fedseq run --attack.")
    if config.algorithm == "centralized":
        raise FedSeqError("algorithm 'centralized' trains on all data in one place. Use fedseq run.")
    return replace(config, dataset="own", partition=None) if own_data else config


def _checked(name: str, value: Any) -> Any:
    if not isinstance(getattr(Settings, name), float):
        return str(value)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise FedSeqError(f"{name.replace('_', '-')} takes a number of seconds greater than 0, not {value!r}.")
    return seconds
