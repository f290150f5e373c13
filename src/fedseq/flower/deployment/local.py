"""A whole federation on this machine, for trying it: start what is missing, see what runs, stop just that."""

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import read_json, write_json
from fedseq.flower.deployment import admission, commands, processes
from fedseq.flower.deployment.federation import LOOPBACK, Federation
from fedseq.flower.deployment.processes import Process

SUPERLINK, SIMULATION = "superlink", "simulation"
START_SECONDS = 600.0  # a process that has ended is noticed at once; a busy machine needs long
SECONDS_A_NODE = 15.0  # they start together and share the cores
STOP_SECONDS = 8.0
PAUSE = 3.0  # between two tries of a node
ONLINE = b"SuperNode ID:"  # what Flower writes when the SuperLink has let the node in
NOT_LET_IN = b"Failed to activate SuperNode"  # a key it does not know, or a node that it believes is there already
LAST_LINES = 25


def _silent(_: str) -> None:
    pass


def up(
    federation: Federation,
    nodes: Iterable[int] | None = None,
    say: Callable[[str], None] = _silent,
    listen: str = LOOPBACK,
) -> list[str]:
    """Start what does not run yet of the SuperLink and these nodes, by default all whose place is here. Returns what it
    started."""
    wanted = _wanted_nodes(federation, nodes)
    running = status(federation)
    started: list[str] = []
    try:
        if federation.tls:
            admission.make_missing_keys(federation, wanted)
        if SUPERLINK not in running:
            say(f"starting the SuperLink on {listen}:{federation.port} ...")
            started.append(SUPERLINK)
            start_superlink(federation, listen)
        missing = [node for node in wanted if node_name(node) not in running]
        if federation.tls and (started or missing):
            admission.register(federation)
        if missing:
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


def start_superlink(federation: Federation, listen: str = LOOPBACK) -> None:
    if not is_free(federation.port):
        raise FedSeqError(
            f"port {federation.port} is taken by another program. Stop it, or make a folder with another --port."
        )
    words = commands.superlink(federation, listen, federation.port, federation.database)
    process = start(federation, SUPERLINK, words, federation.folder / "superlink")
    wait_for_answer(federation, process, federation.port, log_file(federation, SUPERLINK))


def wait_for_answer(federation: Federation, process: Process, port: int, log: Path) -> None:
    if not processes.wait_until(lambda: not process.alive or answers(federation, port), START_SECONDS):
        raise FedSeqError(
            f"the SuperLink does not answer after {START_SECONDS:g} seconds. Its log ends:\n{end_of(log)}"
        )
    if not process.alive:
        raise FedSeqError(f"the SuperLink has ended. Its log ends:\n{end_of(log)}")


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


def _wanted_nodes(federation: Federation, nodes: Iterable[int] | None) -> list[int]:
    """Not those of other sites, which made their keys there."""
    wanted = list(range(federation.nodes) if nodes is None else nodes)
    for node in wanted:
        if not 0 <= node < federation.nodes:
            raise FedSeqError(f"there is no node {node}: this federation has nodes 0 to {federation.nodes - 1}.")
        if nodes is not None and admission.is_elsewhere(federation, node):
            raise FedSeqError(f"node {node} made its key at its site, and is started there: fedseq federation join.")
    wanted = [node for node in wanted if not admission.is_elsewhere(federation, node)]
    if wanted and federation.only_at_sites:
        raise FedSeqError(
            "each node has data of its own, and this folder does not say where. Start the server alone with --server, "
            "and each node at its site (README.md); or make the folder with --node-data 'npz:/path/node-{node}.npz'."
        )
    return wanted


def _start_nodes(federation: Federation, nodes: list[int], say: Callable[[str], None]) -> None:
    """All at once; then wait until each is let in."""
    started = {node: _start_node(federation, node) for node in nodes}
    deadline = time.monotonic() + START_SECONDS + SECONDS_A_NODE * len(nodes)
    for node, process in started.items():
        _wait_for_node(federation, node, process, deadline, say)


def _start_node(federation: Federation, node: int) -> Process:
    words = commands.node_of(federation, node, node_port(federation, node))
    return start(federation, node_name(node), words, federation.node_home(node))


def _wait_for_node(
    federation: Federation, node: int, process: Process, deadline: float, say: Callable[[str], None]
) -> None:
    """A node that was killed is held for alive for a minute, and refused as its own double: it is started again."""
    log = log_file(federation, node_name(node))
    while process.alive and not says(log, ONLINE):
        if time.monotonic() > deadline:
            raise FedSeqError(f"node {node} is still not online. Its log ends:\n{end_of(log)}")
        time.sleep(processes.POLL)
        if not process.alive and says(log, NOT_LET_IN) and time.monotonic() < deadline:
            say(f"the SuperLink still holds node {node} for alive; up to a minute after it was killed ...")
            time.sleep(PAUSE)
            process = _start_node(federation, node)
    if not process.alive:
        raise FedSeqError(f"node {node} was not let in. Its log ends:\n{end_of(log)}")


def node_port(federation: Federation, node: int) -> int:
    """A port that is this node's by the numbers, or the next free one above all of them."""
    return free_port(federation.port + 1 + node, federation.nodes)


def free_port(first: int, step: int = 1) -> int:
    """This one, or the next one in such steps that is free."""
    for port in range(first, 65536, step):
        if is_free(port):
            return port
    raise FedSeqError(f"no port above {first} is free. Make a folder with another --port.")


def start(
    federation: Federation, name: str, words: list[str], home: Path, environment: dict[str, str] | None = None
) -> Process:
    """Start and record it."""
    recorded = _recorded(federation)
    processes.kill([recorded[name]] if name in recorded else [])  # helpers that it may have left
    process = processes.start(words, environment or commands.environment(home), home, log_file(federation, name))
    _record(federation, {**recorded, name: process})
    return process


def says(log: Path, words: bytes) -> bool:
    return words in log.read_bytes()


def end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])


def _recorded(federation: Federation) -> dict[str, Process]:
    path = _record_file(federation)
    return {name: processes.recorded(facts, path) for name, facts in (read_json(path) or {}).items()}


def _record(federation: Federation, running: dict[str, Process]) -> None:
    if running:
        write_json(_record_file(federation), {name: vars(process) for name, process in running.items()})
    else:
        _record_file(federation).unlink(missing_ok=True)


def _record_file(federation: Federation) -> Path:
    return federation.folder / "processes.json"
