"""The run-config of a federation: every option of a run, resolved, and what only a federation needs."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_labelled
from fedseq.flower.apps.settings import Settings, resolve_federation
from fedseq.flower.deployment.federation import Federation
from fedseq.options.config import all_options
from fedseq.options.config_files import own_text
from fedseq.options.resolve import read_options

NOT_OF_OWN_DATA = {"dataset", "alpha", "partition", "data_dir"}


def run_config(federation: Federation, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The resolved options and settings by the names they have in a run-config; None where a run would not use one."""
    chosen = read_options(given)
    if chosen.get("num_clients", federation.nodes) != federation.nodes:
        raise FedSeqError(
            f"--num-clients {chosen['num_clients']} contradicts --nodes {federation.nodes}, for a node is a client. "
            "Leave --num-clients out."
        )
    _check_own_data(federation, settings.server_data)
    used = resolve_federation({}, federation.own_data, {**chosen, "num_clients": federation.nodes}).options()
    names = [name for name, found in all_options().items() if not found.simulated]
    names += _of_own_rules(used)
    left_out = NOT_OF_OWN_DATA if federation.own_data else set()
    options = {name: absolute(name, used.get(name)) for name in names if name not in left_out}
    keys = str(federation.folder / "keys") if federation.tls else ""
    own = dataclasses.replace(
        settings, out=settings.out or str(federation.folder / "run"), keys=keys,
        server_data=absolute("dataset", settings.server_data),
    )  # fmt: skip
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


def _check_own_data(federation: Federation, server_data: str) -> None:
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
