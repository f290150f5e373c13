"""What the server takes from a client: exactly what it expects, and nothing that only looks like it."""

import io

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from fedseq import algorithms
from fedseq.flower.messages import (
    Answer,
    DataFacts,
    Order,
    Refused,
    bound_answers,
    pack_answer,
    pack_order,
    unpack_answer,
    unpack_order,
)
from fedseq.flower.remote_engine import expected_upload
from fedseq.options.resolve import resolve
from fedseq.training.jobs import Job

WEIGHTS = torch.tensor([1.0, -2.0, 0.5])
FACTS = DataFacts((1, 8, 8), ("zero", "one"), (0.25,), (0.5,))


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def reply(arrays: dict | None = None, **metrics: float) -> RecordDict:
    sent = {"weights": Array(WEIGHTS.numpy())} if arrays is None else arrays
    told = {"num-examples": 10, "loss-sum": 2.5, "remembers": 0, **{k.replace("_", "-"): v for k, v in metrics.items()}}
    return RecordDict({"arrays": ArrayRecord(sent), "metrics": MetricRecord(dict(told))})


def test_an_order_arrives_as_it_was_sent():
    order = Order("ab" * 16, 3, 7, (0, 1), "train", False, 0.1, 2, (6, 1), WEIGHTS, {"c": WEIGHTS * 2}, FACTS)
    found = unpack_order(pack_order(order))
    assert torch.equal(found.start, WEIGHTS)
    assert torch.equal(found.message["c"], WEIGHTS * 2)
    assert {k: v for k, v in vars(found).items() if k not in ("start", "message")} == {
        k: v for k, v in vars(order).items() if k not in ("start", "message")
    }


def test_a_first_visit_has_no_memory():
    order = Order("ab" * 16, 0, 1, (0,), "train", True, 0.1, 1, None, WEIGHTS, {}, FACTS)
    assert unpack_order(pack_order(order)).memory is None


def test_an_answer_arrives_as_it_was_sent():
    sent = Answer(WEIGHTS, {"c": WEIGHTS + 1}, 10, 2.5, True)
    found = unpack_answer(pack_answer(sent), torch.zeros(3), {"c": torch.zeros(3)}, 10)
    assert torch.equal(found.weights, WEIGHTS)
    assert torch.equal(found.upload["c"], WEIGHTS + 1)
    assert (found.examples, found.loss_sum, found.remembers) == (10, 2.5, True)


HUGE_HEADER = npy(np.zeros(3, np.float32)).replace(b"'shape': (3,), }", b"'shape': (9,), }")
TRANSPOSED = npy(WEIGHTS.numpy()).replace(b"'fortran_order': False", b"'fortran_order': True ")


def with_header(text: str) -> bytes:
    """As numpy writes it: magic, version, length, header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + WEIGHTS.numpy().tobytes()


# numpy reads the header as a Python literal, and fails in as many ways as there are.
BAD_HEADERS = [
    "{[]: 1}",
    "{1: 2, 'a': 3}",
    "'''",
    "{'a': (",
    "  {\n x",
    "-" * 3000,
    "{'descr': (), 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0x" + "f" * 3900 + ",)}",
]


@pytest.mark.parametrize("header", BAD_HEADERS, ids=range(len(BAD_HEADERS)))
def test_headers_that_python_chokes_on_are_refused(header):
    with pytest.raises(Refused):
        unpack_answer(reply({"weights": Array("float32", (3,), "numpy.ndarray", with_header(header))}), WEIGHTS, {}, 10)


def test_a_small_answer_that_unpacks_to_a_large_one_is_refused(monkeypatch):
    """A hundred million zeros are one piece, named over and over."""
    monkeypatch.setattr(Array, "inflate", Array.inflate)  # whatever is set below is undone
    zeros = Array(np.zeros(100_000_000, np.uint8))
    content, pieces = zeros.deflate(), zeros.children
    bound_answers(1_000)
    with pytest.raises(ValueError, match="larger"):
        Array.inflate(content, children=pieces)
    bound_answers(150_000_000)
    assert Array.inflate(content, children=pieces).data == zeros.data


BAD_ARRAYS = {
    "missing": {},
    "another name": {"weight": Array(WEIGHTS.numpy())},
    "one more": {"weights": Array(WEIGHTS.numpy()), "upload/c": Array(WEIGHTS.numpy())},
    "float64": {"weights": Array(WEIGHTS.double().numpy())},
    "int32": {"weights": Array(WEIGHTS.int().numpy())},
    "big-endian": {"weights": Array(WEIGHTS.numpy().astype(">f4"))},
    "too short": {"weights": Array(WEIGHTS[:2].numpy())},
    "broadcastable": {"weights": Array(WEIGHTS[:1].numpy())},
    "a scalar": {"weights": Array(np.array(1.0, np.float32))},
    "a column": {"weights": Array(WEIGHTS.view(3, 1).numpy())},
    "50 MB": {"weights": Array("float32", (3,), "numpy.ndarray", b"x" * 50_000_000)},
    "rubbish": {"weights": Array("float32", (3,), "numpy.ndarray", b"\x93NUMPY\x01\x00" + b"\xff" * 40)},
    "empty": {"weights": Array("float32", (3,), "numpy.ndarray", b"")},
    "cut off": {"weights": Array("float32", (3,), "numpy.ndarray", npy(WEIGHTS.numpy())[:-1])},
    "more than it says": {"weights": Array("float32", (3,), "numpy.ndarray", npy(WEIGHTS.numpy()) + b"more")},
    "a header that lies": {"weights": Array("float32", (3,), "numpy.ndarray", HUGE_HEADER)},
    "a transposed array": {"weights": Array("float32", (3,), "numpy.ndarray", TRANSPOSED)},
    "a pickle": {"weights": Array("float32", (3,), "numpy.ndarray", b"\x80\x04K\x01.")},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_of_another_form_are_refused(name):
    with pytest.raises(Refused):
        unpack_answer(reply(BAD_ARRAYS[name]), WEIGHTS, {}, 10)


@pytest.mark.parametrize(
    "metrics",
    [{"num_examples": 0}, {"num_examples": -10}, {"num_examples": 11}, {"num_examples": 10.0}, {"loss_sum": 3},
     {"remembers": 2}],
    ids=str,
)  # fmt: skip
def test_numbers_that_are_not_the_clients_are_refused(metrics):
    with pytest.raises(Refused):
        unpack_answer(reply(**metrics), WEIGHTS, {}, 10)


def test_an_empty_answer_is_refused():
    with pytest.raises(Refused, match="missing"):
        unpack_answer(RecordDict(), WEIGHTS, {}, 10)
    with pytest.raises(Refused):
        unpack_answer(RecordDict({"arrays": ArrayRecord({"weights": Array(WEIGHTS.numpy())})}), WEIGHTS, {}, 10)


@pytest.mark.parametrize(
    ("algorithm", "message", "names"),
    [
        ("fedavg", {}, set()),
        ("fedseq+feddyn", {}, set()),
        ("scaffold", {"c": torch.ones(5)}, {"c"}),
        ("fedseqinter+scaffold+fedavgm", {"c": torch.ones(5)}, {"c"}),
    ],
)
def test_the_server_knows_what_an_algorithm_uploads(algorithm, message, names):
    job = Job(0, 0, 1, ((0, 0),), torch.zeros(6), algorithms.build(resolve({"algorithm": algorithm})), 0.1, 1, message)
    expected = expected_upload(job, 5)
    assert set(expected) == names
    assert all(tensor.shape == (5,) and tensor.dtype == torch.float32 for tensor in expected.values())
