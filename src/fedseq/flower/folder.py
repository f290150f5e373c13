"""The folder of a federation: its app, run-config, certificates, keys and the commands that start it.

app/            what `flwr run` sends to the server and to every node: two adapters and the run-config, no data
certificates/   the authority's and the SuperLink's
keys/           a key for each node, the private half for the node, the public half for the server
nodes/K/        what Flower and FedSeq keep for node K
superlink/      what the SuperLink keeps: registered keys and runs
flwr/           the `flwr` command's settings: where this SuperLink is
run/            the server's run folder, as `fedseq run` writes it
"""

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedseq.config import Config
from fedseq.errors import FedSeqError
from fedseq.files import write_json
from fedseq.flower.runconfig import absolute, run_config, toml
from fedseq.flower.settings import Settings

FORMAT = 1
NAME = "federation"  # of the SuperLink in flwr/config.toml
DEFAULT_PORT = 8710
LOOPBACK = "127.0.0.1"

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

from fedseq.flower.{module} import app

__all__ = ["app"]
'''


@dataclass(frozen=True)
class Federation:
    """What `init` decided; the other commands read it back."""

    folder: Path
    nodes: int
    host: str = LOOPBACK  # under which nodes reach the SuperLink
    port: int = DEFAULT_PORT
    tls: bool = True
    own_data: bool = False
    node_data: str = ""  # where node K's own data is on this machine, with {node} for K

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    def node_key(self, node: int) -> Path:
        return self.folder / "keys" / f"node-{node}"

    def node_home(self, node: int) -> Path:
        return self.folder / "nodes" / str(node)


def init(
    folder: Path, nodes: int, config: Config | None = None, *, host: str = LOOPBACK, port: int = DEFAULT_PORT,
    insecure: bool = False, own_data: bool = False, node_data: str = "", settings: Settings | None = None,
) -> Federation:  # fmt: skip
    """Write the folder; a folder that holds anything is refused, so nothing is overwritten."""
    federation = Federation(
        folder.absolute(), nodes, host, port, not insecure, own_data, absolute("dataset", node_data)
    )
    _check(federation)
    values = run_config(federation, config or Config(), settings or Settings())
    from fedseq.flower import readme

    _make_folders(federation)
    if federation.tls:
        _write_keys(federation)
    _write_app(federation, values)
    write_connection(federation.folder / "flwr", federation, federation.port)
    (federation.folder / "README.md").write_text(readme.text(federation), encoding="utf-8")
    facts = {name: value for name, value in vars(federation).items() if name != "folder"}
    write_json(federation.folder / "federation.json", {"format": FORMAT, **facts})
    return federation


def read(folder: Path) -> Federation:
    path = folder.absolute() / "federation.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.pop("format") != FORMAT:
            raise FedSeqError(f"{path} was written by another version of fedseq. Make the folder anew with init.")
        return Federation(folder=folder.absolute(), **facts)
    except FileNotFoundError:
        raise FedSeqError(
            f"{folder} is not the folder of a federation. Make one with: fedseq federation init {folder} --nodes N"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FedSeqError(f"{path} is damaged ({error}). Make the folder anew with init.") from None


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _check(federation: Federation) -> None:
    folder, nodes, host, port = federation.folder, federation.nodes, federation.host, federation.port
    if nodes < 1:
        raise FedSeqError(f"--nodes must be 1 or more, not {nodes}.")
    if not 1024 <= port <= 65535 - nodes:
        raise FedSeqError(
            f"--port must be from 1024 to {65535 - nodes}: each node takes one of the next {nodes} ports."
        )
    if not federation.tls and not is_loopback(host):
        raise FedSeqError(
            f"--insecure is refused for --host {host}: weights would travel unencrypted and any node would be let in. "
            "Leave --insecure out; without TLS only this machine (127.0.0.1) can take part."
        )
    if not _is_address(host) and not re.fullmatch(r"[A-Za-z0-9.-]+", host):
        raise FedSeqError(f"--host takes a name or an address without a port, not '{host}'.")
    if re.search(r"[\"'\\\n]", str(folder)):  # the path stands between quotes in what Flower parses
        raise FedSeqError(f"the path {folder} holds a quote or a backslash, which Flower can't read. Take another one.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedSeqError(f"{folder} exists and is not empty. Nothing is overwritten: take another folder.")


def _make_folders(federation: Federation) -> None:
    private = ("certificates", "keys") if federation.tls else ()
    homes = [f"nodes/{node}" for node in range(federation.nodes)]
    for name in ("", "app", *private, "superlink", "flwr", "nodes", *homes, "logs"):
        # The log of a process, and what a SuperLink knows, are nobody else's business either.
        (federation.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_keys(federation: Federation) -> None:
    from fedseq.flower import keys

    keys.write_certificates(federation.certificates, federation.host)
    for node in range(federation.nodes):
        keys.write_node_key(federation.folder / "keys", node)


def _write_app(federation: Federation, values: dict[str, Any]) -> None:
    app = federation.folder / "app"
    lines = [f"{name} = {toml(value)}\n" for name, value in values.items()]
    (app / "pyproject.toml").write_text(_PROJECT + "".join(lines), encoding="utf-8")
    for side, module in (("server", "server_app"), ("client", "client_app")):
        (app / f"{module}.py").write_text(_ADAPTER.format(side=side, module=module), encoding="utf-8")


def write_connection(home: Path, federation: Federation, port: int) -> None:
    """For `flwr` on the SuperLink's machine, where it listens on loopback too and its certificate names 127.0.0.1."""
    trust = "insecure = true"
    if federation.tls:
        trust = f"root-certificates = {toml(str(federation.certificates / 'ca.crt'))}"
    text = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{LOOPBACK}:{port}"\n{trust}\n'
    (home / "config.toml").write_text(text, encoding="utf-8")
