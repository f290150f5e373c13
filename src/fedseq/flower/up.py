"""`fedseq federation up`: the SuperLink and the nodes of this machine, held by one process in the foreground.

What ends is started again; Ctrl-C or SIGTERM ends all of it, and so does `down`, which asks by a file. Whether it is up
is told by a lock that the process holds, so that nobody looks for it by a number out of a file.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from fedseq.basics.errors import FedSeqError
from fedseq.basics.processes import python
from fedseq.flower import registration
from fedseq.flower.children import (
    NOT_LET_IN,
    ONLINE,
    POLL,
    START_SECONDS,
    Child,
    Trust,
    environment,
    free_port,
    is_free,
    node_config,
    stop,
    superlink_words,
    supernode_words,
    wait_for_superlink,
    wait_until,
)
from fedseq.flower.federation_folder import LOOPBACK, SERVER_FOLDER, Federation

SECONDS_A_NODE = 15.0  # they start together and share the cores
PAUSE = 3.0  # between two tries of a node
READY = "up. Train with"  # begins what `up` says when all of it is online
Say = Callable[[str], None]


@contextmanager
def held(federation: Federation, name: str = "up") -> Iterator[None]:
    """For this process alone, as long as it lives."""
    try:
        with filelock.FileLock(federation.folder / f"{name}.lock", blocking=False):
            yield
    except filelock.Timeout:
        raise FedSeqError(
            f"{federation.folder} is held by another process that runs `{name}` already. End that one first."
        ) from None


def is_up(federation: Federation) -> bool:
    """Whether a process holds it."""
    try:
        with filelock.FileLock(federation.folder / "up.lock", blocking=False):
            return False
    except filelock.Timeout:
        return True


def down(federation: Federation) -> bool:
    """Ask the process that holds it to end. Whether there was one."""
    if not is_up(federation):
        return False
    _asked_to_end(federation).touch()
    if not wait_until(lambda: not is_up(federation), START_SECONDS):
        raise FedSeqError("the process that holds the federation does not end. End it where it was started.")
    return True


def detach(federation: Federation, words: Iterable[str]) -> str:
    """`up` in a process of its own that goes on when this one ends. Returns what it said until all was online."""
    log = log_file(federation, "up")
    child = Child(python("-m", "fedseq", "federation", "up", *words), os.environ, Path.cwd(), log, outlives=True)
    while not child.says(READY.encode()):
        if not child.alive:
            raise FedSeqError(f"`up` has ended. Its log ends:\n{child.last_lines()}")
        time.sleep(POLL)
    return log.read_text(encoding="utf-8", errors="replace").strip()


def log_file(federation: Federation, name: str) -> Path:
    return federation.folder / "logs" / f"{name}.log"


def node_name(node: int) -> str:
    return f"node-{node}"


class Deployment:
    """The SuperLink and these nodes, as children of this process."""

    def __init__(self, federation: Federation, nodes: Iterable[int] | None, say: Say, listen: str = LOOPBACK):
        self.federation = federation
        self.nodes = _places_here(federation, nodes)
        self.say = say
        self.listen = listen
        self.children: dict[str, Child] = {}
        self.again: dict[int, float] = {}  # nodes that have ended: when to start each again

    def start(self) -> None:
        """Returns when everything is online; the caller stops it, also when that fails."""
        _asked_to_end(self.federation).unlink(missing_ok=True)
        if self.federation.tls:
            registration.make_missing_keys(self.federation, self.nodes)
        self.say(f"starting the SuperLink on {self.listen}:{self.federation.port} ...")
        self._start_superlink()
        if self.federation.tls:
            registration.register(self.federation)
        if self.nodes:
            self.say(f"starting {len(self.nodes)} node{'s' if len(self.nodes) > 1 else ''} ...")
        for node in self.nodes:  # all at once
            self.start_node(node)
        deadline = time.monotonic() + START_SECONDS + SECONDS_A_NODE * len(self.nodes)
        while missing := [node for node in self.nodes if not self.children[node_name(node)].says(ONLINE)]:
            self._refuse_hopeless(missing, time.monotonic() > deadline)
            self.look()
            time.sleep(POLL)

    def stay(self) -> None:
        """Start again what ends, until `down` asks to end."""
        asked = _asked_to_end(self.federation)
        while not asked.exists():
            self.look()
            time.sleep(POLL)
        asked.unlink()

    def look(self) -> None:
        """Start again what has ended."""
        superlink = self.children["superlink"]
        if not superlink.alive:
            self.say(f"the SuperLink has ended; starting it again. What it said is in {superlink.log}.")
            self._start_superlink()
        for node in self.nodes:
            child = self.children[node_name(node)]
            if child.alive:
                continue
            if node not in self.again:
                self.again[node] = time.monotonic() + PAUSE
                self.say(_why_again(node, child))
            elif time.monotonic() > self.again[node]:
                self.start_node(node)

    def start_node(self, node: int) -> None:
        self.again.pop(node, None)
        federation = self.federation
        data = federation.node_data.replace("{node}", str(node))
        home = federation.node_home(node)
        trust = Trust(federation.certificates / "ca.crt", federation.node_key(node)) if federation.tls else None
        port = free_port(federation.port + 1 + node, federation.nodes)  # its own by the numbers, or one above all
        config = node_config(node, federation.nodes, home, data=data)
        words = supernode_words(f"{LOOPBACK}:{federation.port}", port, config, trust)
        self.children[node_name(node)] = Child(words, environment(home), home, log_file(federation, node_name(node)))

    def stop(self) -> None:
        """Nodes first, so that they can say goodbye."""
        superlink = self.children.get("superlink")
        stop([child for child in self.children.values() if child is not superlink])
        stop([superlink] if superlink else [])

    def _start_superlink(self) -> None:
        federation = self.federation
        if not wait_until(lambda: is_free(federation.port), PAUSE):
            raise FedSeqError(
                f"port {federation.port} is taken by another program. Stop it, or make a folder with another --port."
            )
        home = federation.folder / "superlink"
        words = superlink_words(federation, self.listen, federation.port, federation.database)
        ours = {**environment(home), SERVER_FOLDER: str(federation.folder)}
        self.children["superlink"] = child = Child(words, ours, home, log_file(federation, "superlink"))
        wait_for_superlink(federation, child, federation.port)

    def _refuse_hopeless(self, missing: list[int], too_late: bool) -> None:
        for node in missing:
            child = self.children[node_name(node)]
            if too_late:
                raise FedSeqError(f"node {node} is still not online. Its log ends:\n{child.last_lines()}")
            if not child.alive and not child.says(NOT_LET_IN) and not child.says(ONLINE):
                raise FedSeqError(f"node {node} was not let in. Its log ends:\n{child.last_lines()}")


def _places_here(federation: Federation, nodes: Iterable[int] | None) -> list[int]:
    """These nodes, by default all but those of other sites, which made their keys there."""
    wanted = list(range(federation.nodes) if nodes is None else nodes)
    for node in wanted:
        if not 0 <= node < federation.nodes:
            raise FedSeqError(f"there is no node {node}: this federation has nodes 0 to {federation.nodes - 1}.")
        if nodes is not None and registration.is_elsewhere(federation, node):
            raise FedSeqError(f"node {node} made its key at its site, and is started there: fedseq federation join.")
    wanted = [node for node in wanted if not registration.is_elsewhere(federation, node)]
    if wanted and federation.only_at_sites:
        raise FedSeqError(
            "each node has data of its own, and this folder does not say where. Start the server alone with --server, "
            "and each node at its site (README.md); or make the folder with --node-data 'npz:/path/node-{node}.npz'."
        )
    return wanted


def _why_again(node: int, child: Child) -> str:
    if child.says(NOT_LET_IN):
        return f"the SuperLink still considers node {node} alive, up to a minute after it was killed; trying again ..."
    return f"node {node} has ended; starting it again. What it said is in {child.log}."


def _asked_to_end(federation: Federation) -> Path:
    return federation.folder / "down"
