"""The options of a federation, as Flower's run-config holds them: those of any run and what only a federation needs.

`init` writes all of them, resolved, into the app; `run --set` changes some for one run; server and clients read them.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.data import load_labelled
from fedseq.options.config import Config, all_options
from fedseq.options.config_files import coerce, own_text
from fedseq.options.datasets import OWN, facts_of, is_table
from fedseq.options.resolve import read_options, resolve

if TYPE_CHECKING:
    from fedseq.flower.federation_folder import Federation


@dataclass(frozen=True)
class Settings:
    out: str = "run"  # name of the run folder in the federation's: nodes see these settings, and learn no paths
    hop_deadline: float = 600.0  # seconds after which a hop is given up
    wait: float = 600.0  # seconds to wait for all clients before the first round
    most_examples: float = 10.0  # times the median of the others' claims: more of a client's examples do not count
    own_data: bool = False  # whether each client brings data of its own
    keys: bool = False  # whether a node is believed by its registered key alone, or who it says it is
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
    config = resolve_federation(given, own_data=settings.own_data)
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
    if name == "out" and not re.fullmatch(r"\w[\w.-]*", str(value)):
        raise FedSeqError(f"out takes a name, for a folder inside the federation's own, not '{value}'.")
    if isinstance(getattr(Settings, name), bool):
        return bool(value)
    if isinstance(getattr(Settings, name), str):
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    unit, least = ("times the median", 1.0) if name == "most_examples" else ("a number of seconds", 0.001)
    if not least <= number < float("inf"):
        raise FedSeqError(f"--{name.replace('_', '-')} takes {unit}, {least:g} or more, not {value!r}.")
    return number


NOT_OF_OWN_DATA = {"dataset", "alpha", "partition", "data_dir"}


def run_config(federation: "Federation", given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The resolved options and settings by the names they have in a run-config; None where a run would not use one."""
    chosen = read_options(given)
    if chosen.get("num_clients", federation.nodes) != federation.nodes:
        raise FedSeqError(
            f"--num-clients {chosen['num_clients']} contradicts --nodes {federation.nodes}, for a node is a client. "
            "Leave --num-clients out."
        )
    _check_own_data(federation)
    used = resolve_federation({}, federation.own_data, {**chosen, "num_clients": federation.nodes}).options()
    names = [name for name, found in all_options().items() if not found.simulated]
    names += _of_own_rules(used)
    left_out = NOT_OF_OWN_DATA if federation.own_data else set()
    options = {name: absolute(name, used.get(name)) for name in names if name not in left_out}
    own = replace(settings, own_data=federation.own_data, keys=federation.tls)
    return {key_of(name): value for name, value in {**options, **vars(own)}.items()}


def _of_own_rules(used: Mapping[str, Any]) -> list[str]:
    """Those given, and those that could be: Flower changes for a run only what is in the run-config."""
    if ":" not in used["algorithm"]:
        return []
    from fedseq.algorithms import own_parameters  # and PyTorch with it

    try:
        possible = own_parameters(used["algorithm"])
    except FedSeqError:  # the module is put beside the app later, or is at the sites alone
        possible = []
    return list(dict.fromkeys([*(name for name in used if "." in name), *possible]))


def key_of(name: str) -> str:
    """An option's name in a run-config. Those of a user's own rule are Python's."""
    return name if "." in name else name.replace("_", "-")


def absolute(name: str, value: Any) -> Any:
    """Paths as seen from anywhere: server and nodes do not run where `init` was called."""
    if not value:
        return value
    if name in ("data_dir", "init_weights"):
        return str(Path(value).absolute())
    kind, colon, path = str(value).partition(":")
    return f"{kind}:{Path(path).absolute()}" if name == "dataset" and colon else value


def refuse_quotes(*paths: object) -> None:
    """They stand between quotes in what Flower parses."""
    for path in paths:
        if re.search(r"[\"'\\\n]", str(path)):
            raise FedSeqError(f"the path {path} holds a quote or a backslash, which Flower cannot read. Take another.")


def toml(values: Mapping[str, Any]) -> str:
    """Lines of TOML; None has no form there, and FedSeq reads "null" as None."""
    return tomli_w.dumps({name: _plain(name, value) for name, value in values.items()})


def _plain(name: str, value: Any) -> Any:
    """Of values Flower takes numbers, texts, true and false only: a list for a rule of one's own becomes a text."""
    if value is None:
        return "null"
    return own_text(value) if "." in name and not isinstance(value, int | float) else value


def words(values: Mapping[str, Any]) -> list[str]:
    """The same as words of a command line: Flower takes NAME=VALUE without spaces around the sign."""
    return [line.replace(" = ", "=", 1) for line in toml(values).splitlines()]


def _check_own_data(federation: "Federation") -> None:
    server_data = federation.server_data
    if not federation.own_data:
        if server_data or federation.node_data:
            raise FedSeqError("--server-data and --node-data are for nodes with data of their own. Add --own-data.")
        return
    if not _names_a_file(server_data):
        raise FedSeqError(
            "with --own-data the server needs labelled examples to evaluate on: "
            f"--server-data npz:FILE, folder:DIR or parquet:FILE, not '{server_data}'."
        )
    if federation.node_data and not (_names_a_file(federation.node_data) and "{node}" in federation.node_data):
        raise FedSeqError(
            "--node-data takes npz:FILE, folder:DIR or parquet:FILE with {node} in place of the node's number, "
            f"not '{federation.node_data}'."
        )
    load_labelled(server_data)  # rather now than when all sites wait for the server


def _names_a_file(source: str) -> bool:
    kind, _, path = source.partition(":")
    return kind in ("npz", "folder", "parquet") and bool(path)


def overrides(federation: "Federation", changes: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE words in the types of the run-config, which has to hold the key: Flower changes only what is there."""
    present = _written(federation)
    found = {}
    for change in changes:
        name, equals, value = change.partition("=")
        name = key_of(name.strip())
        if not equals:
            raise FedSeqError(f"--set takes KEY=VALUE, such as rounds=5, not '{change}'.")
        if name not in present and "." in name:
            raise _not_written(federation, name)
        if name not in present:
            raise unknown("option of the run-config", name, present)
        if '"' in value:
            raise FedSeqError(f"--set {name}: Flower cannot read a value with a quote in it.")
        found[name] = _converted(name, value.strip(), present[name])
    read_settings({field.name: found[key_of(field.name)] for field in fields(Settings) if key_of(field.name) in found})
    options = all_options()
    written, asked = (
        {field: value for name, value in values.items() if (field := _field(name)) in options or "." in field}
        for values in (present, found)
    )
    resolve_federation(written, federation.own_data, asked)  # refuses what would have no effect
    return found


def _written(federation: "Federation") -> dict[str, Any]:
    path = federation.folder / "app" / "pyproject.toml"
    try:
        config: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (OSError, ValueError, KeyError) as error:
        raise FedSeqError(f"{path} holds no run-config ({error!r}). Repair it, or make the folder anew.") from None
    return _flat(config)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """As Flower reads it: a table's names stand behind its own, `smoothed.keep`."""
    tables = {name: _flat(value) for name, value in config.items() if isinstance(value, dict)}
    below = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    return {name: value for name, value in config.items() if name not in tables} | below


def _field(name: str) -> str:
    """The option's name in FedSeq."""
    return name if "." in name else name.replace("-", "_")


def _not_written(federation: "Federation", name: str) -> FedSeqError:
    return FedSeqError(
        f"--set {name}: Flower changes only what is in the run-config. If it is a hyper-parameter of your own rule, "
        f'add the line "{name}" = "null" at the end of {federation.folder / "app" / "pyproject.toml"}.'
    )


def _converted(name: str, value: str, before: Any) -> Any:
    field = _field(name)
    if field in all_options() or "." in field:
        return coerce(field, value)
    if isinstance(before, int | float):
        try:
            return json.loads(value)
        except ValueError:
            raise FedSeqError(f"{name} takes a number, not '{value}'.") from None
    return value
