"""Making the folder of a federation: its app, run-config, certificates, kits and the commands that start it."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedseq.basics.errors import FedSeqError
from fedseq.flower.apps.settings import Settings
from fedseq.flower.deployment import keys, readme
from fedseq.flower.deployment.federation import DEFAULT_PORT, LOOPBACK, NAME, Federation, is_this_machine
from fedseq.flower.deployment.kit import kit_of, write_kit
from fedseq.flower.deployment.runconfig import absolute, refuse_quotes, run_config, toml

_PROJECT = """# What `flwr run` sends to the SuperLink and the nodes. Flower installs nothing: fedseq is there already.
[project]
name = "fedseq-app"
version = "1.0.0"
description = "FedSeq on Flower"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "fedseq"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

# Every option of a run ("null": its default), then what only a federation needs. For one run:
# fedseq federation run DIR --set rounds=5
[tool.flwr.app.config]
"""
_ADAPTER = '''"""Flower starts the {side} here; put your own code around it, or your own model beside it."""

from fedseq.flower.apps.{side}_app import app

__all__ = ["app"]
'''


def init(
    folder: Path, nodes: int, options: Mapping[str, Any] | None = None, *, host: str = LOOPBACK,
    port: int = DEFAULT_PORT, insecure: bool = False, own_data: bool = False, node_data: str = "",
    settings: Settings | None = None,
) -> Federation:  # fmt: skip
    """Write the folder; a folder that holds anything is refused, so nothing is overwritten."""
    federation = Federation(
        folder.absolute(), nodes, host, port, not insecure, own_data, absolute("dataset", node_data)
    )
    _check(federation)
    values = run_config(federation, options or {}, settings or Settings())
    private = ("certificates", "keys", "kits") if federation.tls else ()
    homes = [f"nodes/{node}" for node in range(nodes)]
    for name in ("", "app", *private, "superlink", "flwr", "nodes", *homes, "logs"):
        # The log of a process, and what a SuperLink knows, are nobody else's business either.
        (federation.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    if federation.tls:
        keys.write_certificates(federation.certificates, host)
        for node in range(nodes):
            write_kit(kit_of(federation, node), federation.kit(node))
    texts = {f"app/{side}_app.py": _ADAPTER.format(side=side) for side in ("server", "client")}
    texts["app/pyproject.toml"] = _PROJECT + toml(values)
    texts["README.md"] = readme.text(federation)
    for name, text in texts.items():
        (federation.folder / name).write_text(text, encoding="utf-8")
    write_connection(federation.folder / "flwr", federation, port)
    federation.write()
    return federation


def _check(federation: Federation) -> None:
    folder, nodes, host, port = federation.folder, federation.nodes, federation.host, federation.port
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if nodes < 1:
        raise FedSeqError(f"--nodes must be 1 or more, not {nodes}.")
    if not 1024 <= port <= 65535 - nodes:
        raise FedSeqError(
            f"--port must be from 1024 to {65535 - nodes}: each node takes one of the next {nodes} ports."
        )
    if not federation.tls and not is_this_machine(host):
        raise FedSeqError(
            f"--insecure is refused for --host {host}: weights would travel unencrypted and any node would be let in. "
            "Leave --insecure out; without TLS only this machine (127.0.0.1) can take part."
        )
    if not address and not re.fullmatch(r"[A-Za-z0-9.-]+", host):
        raise FedSeqError(f"--host takes a name or an address without a port, not '{host}'.")
    refuse_quotes(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedSeqError(f"{folder} exists and is not empty. Nothing is overwritten: take another folder.")


def write_connection(home: Path, federation: Federation, port: int) -> None:
    """For `flwr` on the SuperLink's machine, where it listens on loopback too and its certificate names 127.0.0.1."""
    trust = {"root-certificates": str(federation.certificates / "ca.crt")} if federation.tls else {"insecure": True}
    superlink = {"default": NAME, NAME: {"address": f"{LOOPBACK}:{port}", **trust}}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": superlink}), encoding="utf-8")
