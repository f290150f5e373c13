"""The folder of a federation: what `init` decided and writes, where everything is, and the kits that sites get.

app/            what `flwr run` sends to the server and to every node: two adapters and the run-config, no data
certificates/   the authority's and the SuperLink's
keys/           the public key of each node that was registered; the private half too, of nodes that run here
kits/           what each site gets, to join with
nodes/K/        what Flower and FedSeq keep for node K
superlink/      what the SuperLink keeps: registered keys and runs
flwr/           the `flwr` command's settings: where this SuperLink is
logs/           what the SuperLink and the nodes say
run/            the server's run folder, as `fedseq run` writes it

A kit says which client a site is, where the SuperLink is, and whose certificate to trust. It holds no secret. Whoever
has one can ask to be let in, and is not until the operator has registered the site's key; but a site trusts the
authority in it, so it has to come from the operator.
"""

import getpass
import ipaddress
import json
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import tomli_w
from cryptography import x509

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_json
from fedseq.flower import keys
from fedseq.flower.run_options import Settings, absolute, refuse_quotes, run_config, toml

FORMAT = 2
NAME = "federation"  # of the SuperLink in flwr/config.toml
DEFAULT_PORT = 8710
MOST_NODES = 10_000  # each has a port and a key of its own
LOOPBACK = "127.0.0.1"
KIT_FORMAT = 1
SERVER_FOLDER = "FEDSEQ_FEDERATION"  # in the environment of the server's processes: the federation's folder
FACTS, AUTHORITY = "kit.json", "ca.crt"
MOST_KIT_BYTES = 64 << 10
_ADAPTER = '''"""Flower starts the {side} here; put your own code around it, or your own model beside it."""

from fedseq.flower.{side}_app import app

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
    server_data: str = ""  # the server's labelled examples, where nodes have data of their own

    @property
    def only_at_sites(self) -> bool:
        """Whether nothing here says where the nodes' data is, so that they can be started at their sites alone."""
        return self.own_data and not self.node_data

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def database(self) -> Path:
        """Registered keys and runs outlive a restart of the SuperLink."""
        return self.folder / "superlink" / "state.db"

    def node_key(self, node: int) -> Path:
        return self.folder / "keys" / f"node-{node}"

    def public_key(self, node: int) -> Path:
        return self.folder / "keys" / f"node-{node}.pub"

    def kit(self, node: int) -> Path:
        return self.folder / "kits" / f"node-{node}.zip"

    def node_home(self, node: int) -> Path:
        return self.folder / "nodes" / str(node)

    def write(self) -> None:
        facts = {name: value for name, value in vars(self).items() if name != "folder"}
        write_json(self.folder / "federation.json", {"format": FORMAT, **facts})

    @staticmethod
    def of_this_server() -> "Federation":
        """In the server's app: nodes, which get all that the app gets, are not told where it is."""
        if SERVER_FOLDER not in os.environ:
            raise FedSeqError(
                f"this SuperLink does not say where its federation is: start it with `up`, or set {SERVER_FOLDER}."
            )
        return Federation.read(Path(os.environ[SERVER_FOLDER]))

    @staticmethod
    def read(folder: Path) -> "Federation":
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


def is_this_machine(host: str) -> bool:
    """Whether nobody else can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Kit:
    node: int
    nodes: int
    host: str  # of the SuperLink
    port: int
    own_data: bool
    authority: str  # its certificate

    @property
    def files(self) -> dict[str, str]:
        facts = {name: value for name, value in vars(self).items() if name != "authority"}
        return {FACTS: json.dumps({"format": KIT_FORMAT, **facts}, indent=1) + "\n", AUTHORITY: self.authority}


def kit_of(federation: Federation, node: int) -> Kit:
    authority = (federation.certificates / AUTHORITY).read_text(encoding="utf-8")
    return Kit(node, federation.nodes, federation.host, federation.port, federation.own_data, authority)


def write_kit(kit: Kit, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in kit.files.items():
            archive.writestr(name, text)


def read_kit(path: Path) -> Kit:
    """From the zip file, or from a folder that it was unpacked in. Only its two files are read, and bounded."""
    try:
        facts, authority = (_member(path, name) for name in (FACTS, AUTHORITY))
        found = json.loads(facts)
        if found.pop("format") != KIT_FORMAT:
            raise FedSeqError(f"{path} was written by another version of fedseq. Install the one that the server has.")
        kit = Kit(**found, authority=authority)
        _check_kit(kit)
    except FileNotFoundError:
        raise FedSeqError(
            f"there is no kit {path}. It is the file kits/node-K.zip that the server's operator made with "
            "fedseq federation init."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        raise FedSeqError(f"{path} is not a kit of a federation ({error}). Ask the server's operator for it.") from None
    return kit


def _member(path: Path, name: str) -> str:
    if path.is_dir():
        with open_plain(path / name) as file:
            content = file.read(MOST_KIT_BYTES + 1)
    else:
        with open_plain(path) as plain, zipfile.ZipFile(plain) as archive, archive.open(name) as file:
            content = file.read(MOST_KIT_BYTES + 1)
    if len(content) > MOST_KIT_BYTES:
        raise ValueError(f"{name} is too large")
    return content.decode("utf-8")


def _check_kit(kit: Kit) -> None:
    """What it says goes into command lines and paths."""
    numbers = (kit.node, kit.nodes, kit.port)
    if not all(type(number) is int for number in numbers) or not 0 <= kit.node < kit.nodes:
        raise ValueError("it names no client")
    if not re.fullmatch(r"[A-Za-z0-9.:-]+", kit.host) or not 0 < kit.port < 65536 or type(kit.own_data) is not bool:
        raise ValueError("it names no SuperLink")
    x509.load_pem_x509_certificate(kit.authority.encode())


def init(
    folder: Path,
    nodes: int,
    options: Mapping[str, Any] | None = None,
    *,
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    insecure: bool = False,
    own_data: bool = False,
    node_data: str = "",
    server_data: str = "",
    settings: Settings | None = None,
) -> Federation:
    """Write the folder; a folder that holds anything is refused, so nothing is overwritten."""
    data = (absolute("dataset", source) for source in (node_data, server_data))
    federation = Federation(folder.absolute(), nodes, host, port, not insecure, own_data, *data)
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
    template = resources.files("fedseq.flower") / "template"
    texts["app/pyproject.toml"] = (template / "pyproject.toml").read_text(encoding="utf-8") + toml(values)
    texts["README.md"] = _filled((template / "README.md").read_text(encoding="utf-8"), federation)
    for name, text in texts.items():
        (federation.folder / name).write_text(text, encoding="utf-8")
    write_connection(federation.folder / "flwr", federation, port)
    federation.write()
    return federation


def _filled(template: str, federation: Federation) -> str:
    """The README: parts between `<!-- condition -->` and the next mark stand where the condition holds."""
    folder, own_data = federation.folder, federation.own_data
    holds = {
        "end": True,
        "tls": federation.tls,
        "insecure": not federation.tls,
        "sites": federation.only_at_sites,
        "here": not federation.only_at_sites,
        "own": own_data,
        "named": not own_data,
    }
    pieces = re.split(r"<!-- (\w+) -->\n", template)
    text = pieces[0] + "".join(text for mark, text in zip(pieces[1::2], pieces[2::2], strict=True) if holds[mark])
    host = f"[{federation.host}]" if ":" in federation.host else federation.host
    return Template(text).substitute(
        nodes=federation.nodes,
        address=f"{host}:{federation.port}",
        port=federation.port,
        name=NAME,
        folder=shlex.quote(str(folder)),
        app=folder / "app",
        flwr_home=folder / "flwr",
        join_data=" --data npz:/path/of/this/site.npz" if own_data else "",
        command=shutil.which("fedseq") or "fedseq",
        user=getpass.getuser(),
    )


def _check(federation: Federation) -> None:
    folder, nodes, host, port = federation.folder, federation.nodes, federation.host, federation.port
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if not 1 <= nodes <= MOST_NODES:
        raise FedSeqError(f"--nodes must be from 1 to {MOST_NODES:,}, not {nodes}.")
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
