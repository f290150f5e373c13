"""Who is who: which node is which client, and whether it is there.

Node ids are Flower's, and change whenever a node without a key starts anew; clients have numbers, which do not. A node
says which client it is when it is first seen. Where the server holds the clients' public keys it believes only the node
that connected with the key of that client.
"""

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedseq.basics.errors import FedSeqError
from fedseq.flower.apps.messages import HELLO, DataFacts, Refused, pack_facts
from fedseq.flower.apps.post import Post

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
