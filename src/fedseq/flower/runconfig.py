"""The run-config of a federation: every option of a run, resolved, and what only a federation needs."""

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq.config import FIELDS, Config
from fedseq.errors import FedSeqError
from fedseq.flower.settings import Settings, resolve_federation

if TYPE_CHECKING:
    from fedseq.flower.folder import Federation

NOT_OF_A_FEDERATION = {"engine", "workers", "ray_address", "attack", "attackers"}
NOT_OF_OWN_DATA = {"dataset", "alpha", "partition", "data_dir"}


def run_config(federation: "Federation", config: Config, settings: Settings) -> dict[str, Any]:
    """The resolved options and settings by the names they have in a run-config."""
    if config.num_clients not in (None, federation.nodes):
        raise FedSeqError(
            f"--num-clients {config.num_clients} contradicts --nodes {federation.nodes}, for a node is a client. "
            "Leave --num-clients out."
        )
    _check_own_data(federation, settings.server_data)
    given = {name: value for name, value in vars(config).items() if value is not None}
    resolved = resolve_federation({**given, "num_clients": federation.nodes}, federation.own_data)
    left_out = NOT_OF_A_FEDERATION | (NOT_OF_OWN_DATA if federation.own_data else set())
    options = {name: getattr(resolved, name) for name in FIELDS if name not in left_out}
    options = {name: absolute(name, value) for name, value in options.items()}
    keys = str(federation.folder / "keys") if federation.tls else ""
    own = dataclasses.replace(
        settings, out=settings.out or str(federation.folder / "run"), keys=keys,
        server_data=absolute("dataset", settings.server_data),
    )  # fmt: skip
    return {name.replace("_", "-"): value for name, value in {**options, **vars(own)}.items()}


def absolute(name: str, value: Any) -> Any:
    """Paths as seen from anywhere: server and nodes do not run where `init` was called."""
    if not value:
        return value
    if name in ("data_dir", "init_weights"):
        return str(Path(value).absolute())
    kind, colon, path = str(value).partition(":")
    return f"{kind}:{Path(path).absolute()}" if name == "dataset" and colon else value


def toml(value: Any) -> str:
    """A value as TOML writes it; None has no form there, and FedSeq reads "null" as None."""
    if value is None:
        return '"null"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return "inf" if math.isinf(value) else repr(value)
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


def _check_own_data(federation: "Federation", server_data: str) -> None:
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


def _names_a_file(source: str) -> bool:
    kind, _, path = source.partition(":")
    return kind in ("npz", "folder", "parquet") and bool(path)
