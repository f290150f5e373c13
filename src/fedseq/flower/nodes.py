"""The nodes of a federation as its server sees them: messages under way to them, and which of them is which client.

Node ids are Flower's, and change whenever a node without a key starts anew; clients have numbers, which do not. A node
says which client it is when it is first seen. Where the server holds the clients' public keys it believes only the node
that connected with the key of that client.
"""

import math
import queue
import statistics
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from httpx import HTTPError

from fedseq.basics.errors import FedSeqError
from fedseq.flower.messages import HELLO, DataFacts, Refused, pack_facts

Key = TypeVar("Key", bound=Hashable)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks for an answer
LONGEST_REASON = 200  # of a text that comes from a client
GONE_EARLY = 1.0  # seconds before its deadline in which a message that is gone may just have expired
APP_FAILED, GONE = 2, 3
# What Flower's error codes mean here.
_ERRORS = {
    1: "its app could not be loaded",
    APP_FAILED: "its app failed",
    GONE: "no answer within its deadline",
    4: "no answer within its deadline",
    5: "its node is not connected",
    7: "its app is not the one of this run",
    8: "its app crashed",
}


class Post(Generic[Key]):
    """Each answer is fetched by a thread of its own: one that trickles in, or never ends, holds up nobody else."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.waiting: dict[str, tuple[Key, float]] = {}  # message id: whom for, and until when
        self.unsent: list[Key] = []
        self.arrived: queue.SimpleQueue[tuple[str, RecordDict | Refused | HTTPError]] = queue.SimpleQueue()

    def send(self, key: Key, message: Message, seconds: float) -> None:
        until = time.monotonic() + seconds
        sent = list(self.grid.push_messages([message]))
        if not sent or not sent[0]:
            self.unsent.append(key)
            return
        self.waiting[sent[0]] = (key, until)
        threading.Thread(target=self._fetch, args=(sent[0], until), daemon=True, name="fedseq-fetch").start()

    def collect(self, patience: float = LONGEST_PAUSE) -> Iterator[tuple[Key, RecordDict | Refused]]:
        """What has been answered or given up by now; if it is nothing, what comes within this time."""
        for key in self.unsent:
            yield key, Refused("the message could not be sent")
        self.unsent = []
        while self.waiting:
            try:
                message_id, answer = self.arrived.get(timeout=patience)
            except queue.Empty:
                break
            patience = 0.0
            if isinstance(answer, HTTPError):
                raise answer
            if message_id in self.waiting:  # it was not given up
                yield self.waiting.pop(message_id)[0], answer
        for message_id, (key, until) in list(self.waiting.items()):
            if time.monotonic() > until:
                del self.waiting[message_id]
                yield key, Refused("no answer within its deadline")

    def _fetch(self, message_id: str, until: float) -> None:
        pause = SHORTEST_PAUSE
        while time.monotonic() < until:
            answer = self._pull(message_id, until)
            if answer is not None:
                self.arrived.put((message_id, answer))
                return
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)

    def _pull(self, message_id: str, until: float) -> RecordDict | Refused | HTTPError | None:
        """Message by message: one that cannot be read is its sender's loss alone."""
        try:
            found = list(self.grid.pull_messages([message_id]))
            if not found:
                return None
            if not found[0].has_error():
                return found[0].content
            return Refused(_meaning(found[0].error, early=time.monotonic() < until - GONE_EARLY))
        except HTTPError as error:  # no client's fault
            return error
        except Exception as error:  # noqa: BLE001 - whatever a client's bytes make Flower raise
            return Refused(f"its answer cannot be read ({type(error).__name__})")


def _meaning(error: Error, early: bool) -> str:
    """With the last words of an app that failed, which is where Python puts the error.

    Our SuperLink drops an answer that is too large. If it was already being fetched, its parts are missing; if not, the
    order is dropped with it, and Flower answers as if that had expired.
    """
    if "objects are unavailable" in (error.reason or "") or (early and error.code == GONE):
        return "its answer was too large, or was cut off"
    meaning = _ERRORS.get(error.code, f"Flower's error {error.code}")
    if error.code != APP_FAILED or not error.reason:
        return meaning
    lines = [line.strip() for line in error.reason.replace("\\n", "\n").splitlines() if line.strip(" '\">")]
    last = "".join(letter if letter.isprintable() else " " for letter in lines[-1]) if lines else ""
    return f"{meaning}: {last[-LONGEST_REASON:]}"


PAUSE = 0.5  # seconds between two looks
SAY_EVERY = 15.0
ASK_AGAIN_SECONDS = 20.0
MOST_EXAMPLES = 10_000_000


@dataclass
class Roster:
    grid: Grid
    facts: DataFacts
    num_clients: int
    keys: Mapping[int, bytes]  # public key of each client; empty if nodes are believed
    note: Callable[[str], None]
    deadline: float  # seconds in which a node has to say who it is: it may have to decode its data first
    sizes: dict[int, int] = field(default_factory=dict)  # examples of each client, once known
    client_of: dict[int, int] = field(default_factory=dict)  # by node
    asked: dict[int, float] = field(default_factory=dict)  # nodes that were refused, and when to ask them again
    present: dict[int, bytes] = field(default_factory=dict)  # nodes there now, and the key each came with

    def __post_init__(self) -> None:
        self.post: Post[int] = Post(self.grid)  # nodes that were asked who they are
        self.said = 0.0  # when it was last told who is waited for

    def gather(self, seconds: float) -> None:
        """Wait until every client is there. One that has reported in an earlier start may be missing in this one."""
        self.said = time.monotonic()
        give_up = self.said + seconds
        while True:
            self.look()
            missing = [client for client in range(self.num_clients) if self.node(client) is None]
            if not missing:
                return
            if time.monotonic() > give_up:
                break
            self._count_down(missing, give_up)
            self._pause()
        unknown = [client for client in missing if client not in self.sizes]
        if unknown or len(missing) == self.num_clients:
            raise FedSeqError(
                f"clients {unknown or missing} of {self.num_clients} did not report within {seconds:g} s. Start their "
                "nodes, then run again; the server must hear from every client once."
            )
        self.note(f"clients {missing} are not connected; going on without them until they are")

    def counted(self, factor: float) -> list[int]:
        """How many examples of each client count: a client's word decides what it weighs, so at most so many times
        the median of what the others claim."""
        sizes = [self.sizes[client] for client in range(self.num_clients)]
        counted = []
        for client, size in enumerate(sizes):
            others = [other for who, other in enumerate(sizes) if who != client and other]
            most = math.ceil(factor * statistics.median(others)) if others else size
            if size > most:
                self.note(f"client {client} says it holds {size} examples, of which {most} count (--most-examples)")
            counted.append(min(size, most))
        return counted

    def node(self, client: int) -> int | None:
        """The node where the client is now."""
        return next((node for node, who in self.client_of.items() if who == client and node in self.present), None)

    def wait_for_any(self, clients: Collection[int], seconds: float) -> None:
        """Until one of them is there: a round without anybody would be lost, and an outage is soon over."""
        give_up = time.monotonic() + seconds
        self.look()
        self.said = time.monotonic()
        while all(self.node(client) is None for client in clients) and time.monotonic() < give_up:
            self._count_down(sorted(clients), give_up)
            self._pause()
            self.look()

    def _count_down(self, clients: Sequence[int], give_up: float) -> None:
        now = time.monotonic()
        if now >= self.said + SAY_EVERY:
            self.said = now
            self.note(f"waiting for clients {[*clients]}: {max(0, give_up - now):.0f} s left")

    def look(self) -> None:
        """See who is there, and ask those who are new, or have not said yet who they are. Nobody is waited for."""
        self.present = {node.node_id: node.public_key for node in self.grid.get_nodes()}
        for node in [node for node in self.asked if node not in self.present]:  # it may come back repaired
            del self.asked[node]
        pending = {node for node, _ in self.post.waiting.values()}
        for node in self.present:
            if node not in {*self.client_of, *pending} and time.monotonic() >= self.asked.get(node, 0.0):
                content = RecordDict({"data": pack_facts(self.facts)})
                self.post.send(node, Message(content, node, HELLO, ttl=self.deadline), self.deadline)
        self.listen()

    def listen(self, patience: float = 0.0) -> None:
        """Take what nodes have said of themselves by now; if it is nothing, what one says within this time."""
        for node, answer in self.post.collect(patience):
            self._hear(node, answer)

    def _pause(self) -> None:
        """Until the next look, or until a node that was asked answers."""
        if self.post.waiting:
            self.listen(PAUSE)
        else:
            time.sleep(PAUSE)

    def _hear(self, node: int, answer: RecordDict | Refused) -> None:
        """A node that is refused is asked again later: its data may be repaired, or its double be noticed as dead."""
        try:
            if isinstance(answer, Refused):
                raise answer
            self._admit(node, answer)
        except Refused as refusal:
            if node not in self.asked:
                key = self.present.get(node)
                known = [client for client, theirs in self.keys.items() if theirs == key]
                self.note(f"{f'the node of client {known[0]}' if known else f'node {node}'} is not used: {refusal}")
            self.asked[node] = time.monotonic() + ASK_AGAIN_SECONDS

    def _admit(self, node: int, answer: RecordDict) -> None:
        claims: Mapping[str, object] = answer.config_records.get("client", {})
        client, examples = claims.get("client"), claims.get("examples")
        if not isinstance(client, int) or not isinstance(examples, int) or not 0 <= client < self.num_clients:
            raise Refused(f"it says it is client {client!r:.20}, and there are clients 0 to {self.num_clients - 1}")
        if self.keys and self.present.get(node) != self.keys[client]:
            raise Refused(f"it says it is client {client}, and did not connect with that client's key")
        if self.node(client) is not None:
            raise Refused(f"it says it is client {client}, which is connected already")
        if not 0 <= examples <= MOST_EXAMPLES:
            raise Refused(f"client {client} says it holds {examples} examples")
        if self.sizes.get(client, examples) != examples:
            raise Refused(f"client {client} holds {examples} examples, and held {self.sizes.get(client)} before")
        self.sizes[client] = examples
        self.client_of[node] = client
