"""Flower's processes on this machine: what starts them, and how whoever started them watches and ends them.

A process is held by the one that started it, in the foreground, and ended by nobody else: no file says whom to end. On
Linux it also ends when its holder does, however that ends. Its own helpers watch it and follow.
"""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_for_writing
from fedseq.basics.processes import HOLDER, python
from fedseq.flower import run_options
from fedseq.flower.federation_folder import LOOPBACK, Federation

START_SECONDS = 600.0  # a process that has ended is noticed at once; a busy machine needs long
STOP_SECONDS = 8.0
POLL = 0.1
ONLINE = b"SuperNode ID:"  # what Flower writes when the SuperLink has let the node in
NOT_LET_IN = b"Failed to activate SuperNode"  # a key it does not know, or a node that it believes is there already
LAST_LINES = 25
# Nothing is reported, asked for or installed: a run needs no other network than the federation's. And no interpreter
# that Flower starts takes modules from the folder it is started in.
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}
_OUTSIDE = ("FLWR_", "FORWARDED_ALLOW_IPS")  # they could open further ports, or let strangers pass for loopback


class Child:
    """A process that we hold. It reads nothing, and writes into a new log; the log before is kept."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, outlives: bool = False
    ):
        self.log = log
        if log.exists():
            log.replace(log.with_suffix(".old.log"))
        # A session of its own: Ctrl-C in a terminal is for the holder, which ends its children in order.
        given = {**environment, HOLDER: "" if outlives else str(os.getpid())}
        nothing = subprocess.DEVNULL
        with open_for_writing(log, os.O_APPEND) as output:
            self.process = subprocess.Popen(
                words, env=given, cwd=folder, stdin=nothing, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def says(self, words: bytes) -> bool:
        return words in self.log.read_bytes()

    def last_lines(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])

    def kill(self) -> None:
        """At once, as a power cut does."""
        _kill([self], self.family())

    def family(self) -> list[psutil.Process]:
        """Itself and all that it has started, as far as they run."""
        if not self.alive:
            return []
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.process.pid)
            return [process, *process.children(recursive=True)]
        return []


def stop(children: Collection[Child]) -> None:
    """Ask them to end, so that they can say goodbye; what is left of them and of all that they started is made to."""
    family = [process for child in children for process in child.family()]
    for child in children:
        child.process.terminate()
    if not _wait_for_end(children, family):
        _kill(children, family)


def _kill(children: Collection[Child], family: Collection[psutil.Process]) -> None:
    for process in family:
        with contextlib.suppress(psutil.Error):  # it has just ended
            process.kill()
    _wait_for_end(children, family)


def _wait_for_end(children: Collection[Child], family: Collection[psutil.Process]) -> bool:
    """Whether they ended in time. A child that has ended is collected here: its helpers look whether it is there."""
    return wait_until(lambda: not any(child.alive for child in children) and not any(map(_runs, family)), STOP_SECONDS)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def environment(home: Path) -> dict[str, str]:
    """Ours, without what Flower would take from it, and with the place where it finds its helpers by name."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OUTSIDE)}
    path = inherited.get("PATH", os.defpath).split(os.pathsep)
    places = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts"), *path))
    direct = ",".join(filter(None, (inherited.get("no_proxy"), inherited.get("NO_PROXY"), LOOPBACK, "localhost")))
    found = {**inherited, **_QUIET, "FLWR_HOME": str(home), "PATH": os.pathsep.join(places)}
    return {**found, "NO_PROXY": direct, "no_proxy": direct}


def superlink_words(federation: Federation, listen: str, port: int, database: Path | None) -> list[str]:
    words = python("-m", "fedseq.flower.superlink", "--host", listen, "--port", str(port))
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


def supernode_words(superlink: str, port: int, config: str, trust: Trust | None) -> list[str]:
    """On this machine; the port is the one where the node's own helpers ask it for work."""
    words = python("-m", "fedseq.flower.supernode", "--superlink", superlink)
    words += ["--host", LOOPBACK, "--port", str(port), "--node-config", config]
    if trust is None:
        return [*words, "--insecure"]
    return [*words, "--root-certificates", str(trust.authority), "--auth-supernode-private-key", str(trust.key)]


def node_config(node: int, nodes: int, memory: Path, **more: str) -> str:
    """The node's own config: its number and the optional settings that are set."""
    values = {"partition-id": node, "num-partitions": nodes, "memory-dir": str(memory)}
    return " ".join(run_options.words({**values, **{name: value for name, value in more.items() if value}}))


def wait_for_superlink(federation: Federation, child: Child, port: int) -> None:
    if not wait_until(lambda: not child.alive or answers(federation, port), START_SECONDS):
        raise FedSeqError(
            f"the SuperLink does not answer after {START_SECONDS:g} seconds. Its log ends:\n{child.last_lines()}"
        )
    if not child.alive:
        raise FedSeqError(f"the SuperLink has ended. Its log ends:\n{child.last_lines()}")


def answers(federation: Federation, port: int) -> bool:
    """Whether a SuperLink with our certificate is there."""
    trust = ssl.create_default_context(cafile=federation.certificates / "ca.crt") if federation.tls else None
    handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else [])]
    address = f"{'https' if federation.tls else 'http'}://{LOOPBACK}:{port}/health"
    try:
        with urllib.request.build_opener(*handlers).open(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port(first: int, step: int = 1) -> int:
    """This one, or the next one in such steps that is free."""
    for port in range(first, 65536, step):
        if is_free(port):
            return port
    raise FedSeqError(f"no port above {first} is free. Make a folder with another --port.")


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than the remains that its parent has not collected yet."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
