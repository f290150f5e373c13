"""A whole federation on this machine, for trying it: start what is missing, see what runs, stop just that."""

import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

from fedseq.errors import FedSeqError
from fedseq.files import write_json
from fedseq.flower import commands, processes
from fedseq.flower.folder import LOOPBACK, Federation
from fedseq.flower.processes import Process
from fedseq.flower.readme import database

SUPERLINK, SIMULATION = "superlink", "simulation"
START_SECONDS = 120.0
SECONDS_A_NODE = 15.0  # they start together and share the cores
STOP_SECONDS = 8.0
PAUSE = 3.0  # between two tries of a node
ONLINE = b"SuperNode ID:"  # what Flower writes when the SuperLink has let the node in
DOUBLE = b"Failed to activate SuperNode"  # and when it believes that the node is there already
LAST_LINES = 25


def _silent(_: str) -> None:
    pass


def up(federation: Federation, nodes: Iterable[int] | None = None, say: Callable[[str], None] = _silent) -> list[str]:
    """Start what does not run yet of the SuperLink and these nodes, by default all. Returns what it started."""
    wanted = _wanted_nodes(federation, nodes)
    running = status(federation)
    started: list[str] = []
    try:
        if SUPERLINK not in running:
            say(f"starting the SuperLink on {LOOPBACK}:{federation.port} ...")
            started.append(SUPERLINK)
            start_superlink(federation)
        missing = [node for node in wanted if node_name(node) not in running]
        if missing:
            if federation.tls:
                _register(federation)
            say(f"starting {len(missing)} node{'s' if len(missing) > 1 else ''} ...")
            started += map(node_name, missing)
            _start_nodes(federation, missing, say)
    except (FedSeqError, OSError):
        down(federation, started)
        raise
    return started


def down(federation: Federation, names: Iterable[str] | None = None) -> list[str]:
    """Stop what `up` started, and its helpers; nodes first, so that they can say goodbye. Returns what was running."""
    recorded = _recorded(federation)
    chosen = {name: process for name, process in recorded.items() if names is None or name in set(names)}
    alive = [name for name, process in chosen.items() if process.alive]
    processes.stop([process for name, process in chosen.items() if name != SUPERLINK], STOP_SECONDS)
    if SUPERLINK in chosen:
        processes.stop([chosen[SUPERLINK]], STOP_SECONDS)
    _record(federation, {name: process for name, process in recorded.items() if name not in chosen})
    return alive


def status(federation: Federation) -> dict[str, Process]:
    """What runs, by name: `superlink`, `node-0`, ..."""
    return {name: process for name, process in _recorded(federation).items() if process.alive}


def node_name(node: int) -> str:
    return f"node-{node}"


def log_file(federation: Federation, name: str) -> Path:
    return federation.folder / "logs" / f"{name}.log"


def start_superlink(federation: Federation) -> None:
    if not is_free(federation.port):
        raise FedSeqError(
            f"port {federation.port} is taken by another program. Stop it, or make a folder with another --port."
        )
    words = commands.superlink(federation, LOOPBACK, federation.port, database(federation))
    process = start(federation, SUPERLINK, words, federation.folder / "superlink")
    wait_for_answer(federation, process, federation.port, log_file(federation, SUPERLINK))


def wait_for_answer(federation: Federation, process: Process, port: int, log: Path) -> None:
    if not processes.wait_until(lambda: not process.alive or answers(federation, port), START_SECONDS):
        raise FedSeqError(f"the SuperLink does not answer after {START_SECONDS:g} seconds. Its log ends:\n{_end(log)}")
    if not process.alive:
        raise FedSeqError(f"the SuperLink has ended. Its log ends:\n{_end(log)}")


def answers(federation: Federation, port: int) -> bool:
    """Whether a SuperLink with our certificate is there."""
    trust = ssl.create_default_context(cafile=federation.certificates / "ca.crt") if federation.tls else None
    handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else [])]
    address = f"{'https' if federation.tls else 'http'}://{LOOPBACK}:{port}/health"
    try:
        with urllib.request.build_opener(*handlers).open(address, timeout=5) as answer:
            return answer.status == 200
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


def _wanted_nodes(federation: Federation, nodes: Iterable[int] | None) -> list[int]:
    wanted = list(range(federation.nodes) if nodes is None else nodes)
    for node in wanted:
        if not 0 <= node < federation.nodes:
            raise FedSeqError(f"there is no node {node}: this federation has nodes 0 to {federation.nodes - 1}.")
    if federation.own_data and not federation.node_data:
        raise FedSeqError(
            "each node has data of its own, and this folder does not say where. Start the nodes as README.md in it "
            "shows, or make the folder with --node-data 'npz:/path/node-{node}.npz'."
        )
    return wanted


def _register(federation: Federation) -> None:
    keys = [f"{federation.node_key(node)}.pub" for node in range(federation.nodes)]
    words = [sys.executable, "-m", "fedseq.flower.registration", *keys]
    asked = subprocess.run(
        words, env=commands.environment(federation.folder / "flwr"), capture_output=True, text=True, errors="replace"
    )
    if asked.returncode:
        raise FedSeqError(f"the nodes' keys could not be registered:\n{asked.stdout.strip()}\n{asked.stderr.strip()}")


def _start_nodes(federation: Federation, nodes: list[int], say: Callable[[str], None]) -> None:
    """All at once; then wait until each is let in."""
    started = {node: _start_node(federation, node) for node in nodes}
    deadline = time.monotonic() + START_SECONDS + SECONDS_A_NODE * len(nodes)
    for node, process in started.items():
        _wait_for_node(federation, node, process, deadline, say)


def _start_node(federation: Federation, node: int) -> Process:
    words = commands.supernode(federation, node, free_port(federation, node))
    return start(federation, node_name(node), words, federation.node_home(node))


def _wait_for_node(
    federation: Federation, node: int, process: Process, deadline: float, say: Callable[[str], None]
) -> None:
    """A node that was killed is held for alive for a minute, and refused as its own double: it is started again."""
    log = log_file(federation, node_name(node))
    while process.alive and not _says(log, ONLINE):
        if time.monotonic() > deadline:
            raise FedSeqError(f"node {node} is still not online. Its log ends:\n{_end(log)}")
        time.sleep(processes.POLL)
        if not process.alive and _says(log, DOUBLE) and time.monotonic() < deadline:
            say(f"the SuperLink still holds node {node} for alive; up to a minute after it was killed ...")
            time.sleep(PAUSE)
            process = _start_node(federation, node)
    if not process.alive:
        raise FedSeqError(f"node {node} was not let in. Its log ends:\n{_end(log)}")


def free_port(federation: Federation, node: int) -> int:
    """A port that is this node's by the numbers, or the next free one above all of them."""
    first = federation.port + 1
    others = range(first + federation.nodes + node, 65536, federation.nodes)
    for port in (first + node, *others):
        if is_free(port):
            return port
    raise FedSeqError(f"no port above {federation.port} is free. Make a folder with another --port.")


def start(
    federation: Federation, name: str, words: list[str], home: Path, environment: dict[str, str] | None = None
) -> Process:
    """Start and record it, with a new log; the one before is kept."""
    log, recorded = log_file(federation, name), _recorded(federation)
    processes.kill([recorded[name]] if name in recorded else [])  # helpers that it may have left
    if log.exists():
        log.replace(log.with_suffix(".old.log"))
    process = processes.start(words, environment or commands.environment(home), home, log)
    _record(federation, {**recorded, name: process})
    return process


def _says(log: Path, words: bytes) -> bool:
    return words in log.read_bytes()


def _end(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])


def _recorded(federation: Federation) -> dict[str, Process]:
    path = _record_file(federation)
    if not path.exists():
        return {}
    try:
        return {name: Process(**facts) for name, facts in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise FedSeqError(f"{path} is damaged ({error}). Stop the processes by hand, and remove it.") from None


def _record(federation: Federation, running: dict[str, Process]) -> None:
    if running:
        write_json(_record_file(federation), {name: vars(process) for name, process in running.items()})
    else:
        _record_file(federation).unlink(missing_ok=True)


def _record_file(federation: Federation) -> Path:
    return federation.folder / "processes.json"
