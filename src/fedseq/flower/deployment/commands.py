"""The commands that start a federation's processes, and the surroundings they need."""

import os
import shlex
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from fedseq.basics.processes import python
from fedseq.flower.deployment import runconfig
from fedseq.flower.deployment.federation import LOOPBACK, Federation

# Nothing is reported, asked for or installed: a run needs no other network than the federation's.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
_OUTSIDE = ("FLWR_", "FORWARDED_ALLOW_IPS")  # they could open further ports, or let strangers pass for loopback


def environment(home: Path) -> dict[str, str]:
    """Ours, without what Flower would take from it, and with the place where it finds its helpers by name."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OUTSIDE)}
    path = inherited.get("PATH", os.defpath).split(os.pathsep)
    places = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts"), *path))
    direct = ",".join(filter(None, (inherited.get("no_proxy"), inherited.get("NO_PROXY"), LOOPBACK, "localhost")))
    return {
        **inherited, **QUIET, "FLWR_HOME": str(home), "PATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1",
        "NO_PROXY": direct, "no_proxy": direct,
    }  # fmt: skip


def superlink(federation: Federation, listen: str, port: int, database: Path | None) -> list[str]:
    words = python("-m", "fedseq.flower.deployment.superlink", "--host", listen, "--port", str(port))
    words += ["--database", str(database)] if database else []
    words += ["--disable-runtime-dependency-installation"]
    if not federation.tls:
        return [*words, "--insecure"]
    of = federation.certificates
    words += ["--ssl-ca-certfile", str(of / "ca.crt"), "--ssl-certfile", str(of / "server.crt")]
    return [*words, "--ssl-keyfile", str(of / "server.key"), "--enable-supernode-auth"]


@dataclass(frozen=True)
class Trust:
    """Whom a node trusts, and the key by which it is known itself."""

    authority: Path
    key: Path


def supernode(superlink: str, port: int, config: str, trust: Trust | None) -> list[str]:
    """On this machine; the port is the one where the node's own helpers ask it for work."""
    words = python("-m", "fedseq.flower.deployment.supernode", "--superlink", superlink)
    words += ["--host", LOOPBACK, "--port", str(port), "--node-config", config]
    if trust is None:
        return [*words, "--insecure"]
    return [*words, "--root-certificates", str(trust.authority), "--auth-supernode-private-key", str(trust.key)]


def node_of(federation: Federation, node: int, port: int) -> list[str]:
    """The command for a node of a federation that is all on this machine."""
    data = federation.node_data.replace("{node}", str(node))
    config = node_config(node, federation.nodes, federation.node_home(node), data=data)
    trust = Trust(federation.certificates / "ca.crt", federation.node_key(node)) if federation.tls else None
    return supernode(f"{LOOPBACK}:{federation.port}", port, config, trust)


def node_config(node: int, nodes: int, memory: Path, **more: str) -> str:
    """What a node knows of itself; of what may be said more, what is."""
    values = {"partition-id": node, "num-partitions": nodes, "memory-dir": str(memory)}
    return " ".join(runconfig.words({**values, **{name: value for name, value in more.items() if value}}))


def paste(words: list[str]) -> str:
    """As a shell reads it, a few words a line."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > 100 and word.startswith("--"):
            lines.append(line)
            line = "    "
        line += word if not line.strip() else f" {word}"
    return " \\\n".join([*lines, line])
