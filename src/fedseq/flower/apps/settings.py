"""A federation's run-config: the options of any run, and what only a federation needs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.options.datasets import OWN, facts_of, is_table
from fedseq.options.resolve import read_options, resolve


@dataclass(frozen=True)
class Settings:
    out: str = ""  # the server's run folder
    hop_deadline: float = 600.0  # seconds after which a hop is given up
    wait: float = 600.0  # seconds to wait for all clients before the first round
    most_examples: float = 10.0  # times the median of the others' claims: more of a client's examples do not count
    server_data: str = ""  # the server's labelled examples, where clients bring data of their own
    keys: str = ""  # folder with node-K.pub of every client K; without it a node is believed who it says it is
    memory_dir: str = ""  # where clients keep their memory, unless their node config says


# What a federation does unless told otherwise: trust nobody's update, and be ready to be killed after any round.
# Noise that follows from the seed would be known to all who are told the seed.
DEFAULTS = {"update_check": "size", "checkpoint_every": 1, "dp_source": "system"}
ENGINE = "flower"


def read_run_config(run_config: Mapping[str, Any]) -> tuple[Config, Settings]:
    """The resolved config and the settings; what is wrong with them is told before any client is asked for work."""
    given = {name.replace("-", "_"): value for name, value in run_config.items()}
    own = {field.name: given.pop(field.name) for field in fields(Settings) if field.name in given}
    settings = read_settings(own)
    config = resolve_federation(given, own_data=bool(settings.server_data))
    return replace(config, engine=ENGINE, workers=None), settings


def read_settings(given: Mapping[str, Any]) -> Settings:
    return Settings(**{name: _checked(name, value) for name, value in given.items()})


def resolve_federation(written: Mapping[str, Any], own_data: bool, asked: Mapping[str, Any] | None = None) -> Config:
    """A federation's options with its defaults: those written in its run-config, and others asked for over them."""
    if {**written, **(asked or {})}.get("algorithm") == "centralized":
        raise FedSeqError("algorithm 'centralized' trains on all data in one place. Use fedseq run.")
    chosen = read_options({**written, **(asked or {})})
    if chosen.get("attack") is not None:
        raise FedSeqError("attackers are simulated, and clients of a federation are real. Use fedseq run --attack.")
    named = chosen.get("dataset", "")
    if not own_data and (chosen.get("clients_by") or is_table(named) or facts_of(named).clients_by):
        raise FedSeqError(
            f"'{named}' has clients of its own, and in a federation each node is one: give every node its own file "
            "with --own-data, or try it on one machine with fedseq run."
        )
    own = {"dataset": OWN} if own_data else {}
    return resolve({**own, **(asked or {})}, {**DEFAULTS, **read_options(written)})


def _checked(name: str, value: Any) -> Any:
    if not isinstance(getattr(Settings, name), float):
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    unit, least = ("times the median", 1.0) if name == "most_examples" else ("a number of seconds", 0.001)
    if not least <= number < float("inf"):
        raise FedSeqError(f"--{name.replace('_', '-')} takes {unit}, {least:g} or more, not {value!r}.")
    return number
