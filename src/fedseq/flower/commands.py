"""The commands that start a federation's processes, and the surroundings they need."""

import os
import shlex
import sys
import sysconfig
from pathlib import Path

from fedseq.flower.folder import LOOPBACK, Federation
from fedseq.flower.runconfig import toml

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
    places = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts"), *_path(inherited)))
    direct = ",".join(filter(None, (inherited.get("no_proxy"), inherited.get("NO_PROXY"), LOOPBACK, "localhost")))
    return {
        **inherited, **QUIET, "FLWR_HOME": str(home), "PATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1",
        "NO_PROXY": direct, "no_proxy": direct,
    }  # fmt: skip


def superlink(federation: Federation, listen: str, port: int, database: Path | None) -> list[str]:
    words = [sys.executable, "-m", "fedseq.flower.superlink", "--host", listen, "--port", str(port)]
    words += ["--database", str(database)] if database else []
    words += ["--disable-runtime-dependency-installation"]
    if not federation.tls:
        return [*words, "--insecure"]
    of = federation.certificates
    words += ["--ssl-ca-certfile", str(of / "ca.crt"), "--ssl-certfile", str(of / "server.crt")]
    return [*words, "--ssl-keyfile", str(of / "server.key"), "--enable-supernode-auth"]


def supernode(federation: Federation, node: int, port: int) -> list[str]:
    """On this machine; the port is the one where the node's own helpers ask it for work."""
    words = ["flower-supernode", "--superlink", f"{LOOPBACK}:{federation.port}", "--host", LOOPBACK]
    words += ["--port", str(port), "--node-config", node_config(federation, node, federation.node_home(node))]
    if not federation.tls:
        return [*words, "--insecure"]
    words += ["--root-certificates", str(federation.certificates / "ca.crt")]
    return [*words, "--auth-supernode-private-key", str(federation.node_key(node))]


def node_config(federation: Federation, node: int, memory: Path) -> str:
    values = {"partition-id": node, "num-partitions": federation.nodes, "memory-dir": str(memory)}
    if federation.node_data:
        values["data"] = federation.node_data.replace("{node}", str(node))
    return " ".join(f"{name}={toml(value)}" for name, value in values.items())


def paste(words: list[str]) -> str:
    """As a shell reads it, a few words a line."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > 100 and word.startswith("--"):
            lines.append(line)
            line = "    "
        line += word if not line.strip() else f" {word}"
    return " \\\n".join([*lines, line])


def _path(environment: dict[str, str]) -> list[str]:
    return environment.get("PATH", os.defpath).split(os.pathsep)
