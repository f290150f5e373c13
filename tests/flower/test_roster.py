"""Who is who: nodes that are silent, and nodes that claim too much. The grid is Flower's own, in memory."""

import re
import tracemalloc

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from fedseq.algorithms.base import FEDAVG
from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset
from fedseq.flower.messages import DataFacts, Refused
from fedseq.flower.nodes import Post, Roster
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import assemble

from .grids import Nodes

pytestmark = pytest.mark.timeout(60)  # a node that is waited for would take ten times as long

FACTS = DataFacts((1, 8, 8), ("zero", "one"), (0.25,), (0.5,))
DEADLINE = 600.0


def make_roster(nodes: Nodes, sizes: dict[int, int] | None = None) -> tuple[Roster, list[str]]:
    notes: list[str] = []
    return Roster(nodes.grid, FACTS, len(nodes.ids), {}, notes.append, DEADLINE, sizes=sizes or {}), notes


def listen_until_known(roster: Roster, clients: int) -> None:
    while len(roster.client_of) < clients:
        roster.look()


def test_a_silent_node_holds_up_nobody():
    """One says who it is, the other nothing at all: the first is used at once, and the second asked just once."""
    nodes = Nodes(2)
    roster, notes = make_roster(nodes, sizes={0: 10, 1: 10})
    roster.look()
    nodes.say(0, client=0, examples=10)
    listen_until_known(roster, 1)
    roster.wait_for_any([0, 1], DEADLINE)
    roster.gather(1.0)
    assert (roster.node(0), roster.node(1)) == (nodes.ids[0], None)
    assert notes == ["clients [1] are not connected; going on without them until they are"]
    assert len(nodes.state.get_message_ins(nodes.ids[1], None)) == 1


def test_waiting_ends_when_it_says():
    roster, _ = make_roster(Nodes(2))
    with pytest.raises(FedSeqError, match=r"clients \[0, 1\] of 2 did not report within 1 s"):
        roster.gather(1.0)


def test_who_is_waited_for_is_said_with_the_time_left(monkeypatch):
    monkeypatch.setattr("fedseq.flower.nodes.SAY_EVERY", 0.0)
    roster, notes = make_roster(Nodes(2))
    with pytest.raises(FedSeqError):
        roster.gather(0.5)
    assert re.fullmatch(r"waiting for clients \[0, 1\]: [01] s left", notes[0])


def test_a_refused_node_is_named_by_its_key():
    nodes = Nodes(2)
    roster, notes = make_roster(nodes)
    roster.keys = {0: b"0", 1: b"1"}
    roster.look()
    nodes.say(1, client=0, examples=10)
    while not notes:
        roster.listen()
    [note] = notes
    assert note.startswith("the node of client 1 is not used: it says it is client 0, and did not connect with")


def test_a_node_that_speaks_up_during_a_round_is_used():
    nodes = Nodes(1)
    roster, _ = make_roster(nodes, sizes={0: 10})
    roster.look()
    nodes.say(0, client=0, examples=10)
    while roster.node(0) is None:
        roster.listen()


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(DEADLINE, "its answer was too large, or was cut off"), (0.2, "no answer within its deadline")],
)
def test_an_order_that_the_superlink_dropped_early_had_too_large_an_answer(seconds: float, reason: str) -> None:
    """Flower says that an order has expired, also when it was dropped with its answer; only the clock knows which."""
    nodes = Nodes(1)
    post: Post[str] = Post(nodes.grid)
    post.send("hop", Message(RecordDict(), nodes.ids[0], "train", ttl=seconds), seconds)
    [(message_id, _)] = post.waiting.items()
    nodes.state.delete_messages({message_id})
    [(key, answer)] = post.collect(patience=30.0)
    assert isinstance(answer, Refused)
    assert (key, str(answer)) == ("hop", reason)


@pytest.mark.parametrize(
    ("claims", "counted"),
    [
        ([100, 100, 100], [100, 100, 100]),
        ([100, 300, 100_000], [100, 300, 2000]),  # ten times the median of 100 and 300
        ([7, 1001], [7, 70]),
        ([10_000_000], [10_000_000]),  # nobody to compare it with
        ([0, 0, 500], [0, 0, 500]),  # those who hold nothing say nothing of what is usual
        ([3, 4, 1000, 0], [3, 4, 35, 0]),  # the median of 3 and 4 is 3.5
    ],
)
def test_a_claim_counts_up_to_ten_times_the_median_of_the_others(claims, counted):
    roster, notes = make_roster(Nodes(len(claims)), sizes=dict(enumerate(claims)))
    assert roster.counted(10.0) == counted
    assert len(notes) == sum(claim != count for claim, count in zip(claims, counted, strict=True))


def test_a_claim_is_never_allocated():
    """Two clients that claim ten million examples each: as arrays of indices they would take 160 MB."""
    claims = [np.broadcast_to(np.int64(0), size) for size in (10_000_000, 10_000_000)]
    dataset = load_dataset("digits")
    tracemalloc.start()
    parts = assemble(resolve({"dataset": "digits", "num_clients": 2}), dataset, claims, FEDAVG)
    assert len(parts.task.fingerprint) == 16
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
