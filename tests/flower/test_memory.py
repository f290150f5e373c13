"""A client's memory: the version that the server names, whatever happened since."""

import pytest
import torch
from flwr.app import RecordDict

from fedseq.basics.errors import FedSeqError
from fedseq.flower.client_memory import Memories, rounds_back

RUN = "0123456789abcdef"


def memory(value: float) -> dict[str, torch.Tensor]:
    return {"g": torch.full((3,), value)}


def open_memories(folder, state=None, back: int = 3) -> Memories:
    return Memories(RUN, 5, RecordDict() if state is None else state, folder, back)


def visit(memories: Memories, base, version, number: float | None = None) -> None:
    """As a client does: start from the version that the server names, and write the next."""
    memories.load(base)
    memories.save(version, memory(version[0] if number is None else number))


def value(memories: Memories, version) -> float:
    return memories.load(version)["g"][0].item()


def test_a_first_visit_remembers_nothing(tmp_path):
    assert open_memories(tmp_path).load(None) == {}


def test_memory_outlives_the_node(tmp_path):
    open_memories(tmp_path).save((2, 0), memory(2.0))
    assert value(open_memories(tmp_path), (2, 0)) == 2.0  # a new process with an empty Flower state


def test_memory_in_flowers_state_needs_no_folder():
    state = RecordDict()
    open_memories(None, state).save((2, 0), memory(2.0))
    assert value(open_memories(None, state), (2, 0)) == 2.0


def test_the_server_may_go_back_as_far_as_its_checkpoints_reach(tmp_path):
    memories = open_memories(tmp_path, back=rounds_back(checkpoint_every=1))
    visit(memories, None, (1, 0))
    for round_ in range(2, 11):
        visit(memories, (round_ - 1, 0), (round_, 0))
    # Round 10 is under way: 9 may not be saved yet, 8 may be damaged, so that 7 is what the server continues from.
    for round_ in (7, 8, 9, 10):
        assert value(open_memories(tmp_path), (round_, 0)) == round_
    assert len(list(tmp_path.rglob("*.safetensors"))) == 4
    assert len(memories.state) == 4


def test_a_client_that_is_seldom_drawn_keeps_its_last_settled_version(tmp_path):
    memories = open_memories(tmp_path)
    for base, version in ((None, (1, 0)), ((1, 0), (2, 0)), ((2, 0), (50, 0))):
        visit(memories, base, version)
    assert value(memories, (2, 0)) == 2.0
    with pytest.raises(FedSeqError, match="round 1 is lost"):
        memories.load((1, 0))


def test_what_the_server_refused_does_not_push_out_what_counts(tmp_path):
    """The answers of rounds 5 and 9 were refused: whenever the server asks again, it is for round 1."""
    memories = open_memories(tmp_path)
    visit(memories, None, (1, 0))
    for round_ in (5, 9, 30):
        visit(memories, (1, 0), (round_, 0))
        assert value(open_memories(tmp_path), (1, 0)) == 1.0
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


def test_rounds_behind_which_the_server_went_back_are_forgotten(tmp_path):
    memories = open_memories(tmp_path)
    for base, version in ((None, (5, 0)), ((5, 0), (6, 0)), ((6, 0), (7, 0))):
        visit(memories, base, version)
    visit(memories, (5, 0), (6, 0), number=60.0)  # the server starts from round 5 again
    assert value(memories, (5, 0)) == 5.0
    assert value(memories, (6, 0)) == 60.0
    with pytest.raises(FedSeqError, match="round 7 is lost"):
        memories.load((7, 0))


def test_every_visit_of_a_round_has_its_version(tmp_path):
    memories = open_memories(tmp_path)
    for base, version in ((None, (1, 0)), ((1, 0), (1, 1)), ((1, 1), (1, 2))):
        visit(memories, base, version, number=version[1])
    assert [value(memories, (1, number)) for number in range(3)] == [0.0, 1.0, 2.0]


def test_runs_and_clients_do_not_share_memory(tmp_path):
    open_memories(tmp_path).save((1, 0), memory(1.0))
    for run, client in (("f" * 16, 5), (RUN, 6)):
        with pytest.raises(FedSeqError, match="memory-dir"):
            Memories(run, client, RecordDict(), tmp_path, 3).load((1, 0))


@pytest.mark.parametrize("run", ["../../etc", "", "a/b", "xyz" * 4])
def test_a_runs_name_is_never_a_path(run, tmp_path):
    with pytest.raises(FedSeqError, match="hexadecimal"):
        Memories(run, 0, RecordDict(), tmp_path, 3)
