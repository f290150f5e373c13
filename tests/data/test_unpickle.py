"""The unpickler builds uint8 arrays and plain values, and calls nothing that a pickle names."""

import builtins
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset, unpickle
from fedseq.data.unpickle import load_batch

from .builders import cifar_batches, expect_archive, python2_batch, small_cifar, write_archive, write_batches

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6)


class _Calls:
    """Pickles to a call of this function with these arguments."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def _attacks(trace: Path) -> dict[str, Any]:
    return {
        "posix.system": _Calls(os.system, f"touch {trace}"),
        "builtins.eval": _Calls(eval, f"open({str(trace)!r}, 'w')"),
        "builtins.exec": _Calls(builtins.exec, f"open({str(trace)!r}, 'w')"),
        "io.open": _Calls(open, str(trace), "w"),
        "builtins.getattr": _Calls(getattr, [], "append"),
    }


def test_python2_batches_are_read() -> None:
    batch = load_batch(python2_batch(PIXELS, [3, 1, 0, 2], "labels"), "batch")
    np.testing.assert_array_equal(batch["data"], PIXELS)
    assert batch["labels"] == [3, 1, 0, 2]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("pixels", [PIXELS, np.asfortranarray(PIXELS)], ids=["C", "Fortran"])
def test_batches_pickled_again_are_read(protocol: int, pixels: np.ndarray) -> None:
    batch = load_batch(pickle.dumps({b"data": pixels, "labels": [1]}, protocol), "batch")
    np.testing.assert_array_equal(batch["data"], PIXELS)
    assert batch["labels"] == [1]


@pytest.mark.parametrize("attack", sorted(_attacks(Path())))
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_calls_are_refused_and_not_made(attack: str, protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    raw = pickle.dumps({"data": _attacks(trace)[attack]}, protocol)
    if attack != "builtins.getattr":  # the attack is real: the standard unpickler falls for it
        pickle.loads(raw)
        assert trace.exists()
        trace.unlink()
    with pytest.raises(FedSeqError, match=f"^some file: refused, because it asks for .*{attack.partition('.')[2]}"):
        load_batch(raw, "some file")
    assert not trace.exists()


@pytest.mark.parametrize("packed", [False, True], ids=["extracted", "archive"])
def test_malicious_batch_in_a_data_folder(
    packed: bool, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    evil = pickle.dumps({"data": _Calls(os.system, f"touch {trace}")}, 2)
    batches = cifar_batches("cifar10", small_cifar(monkeypatch, "cifar10")) | {"data_batch_4": evil}
    if packed:
        expect_archive(monkeypatch, "cifar10", write_archive(tmp_path, "cifar10", batches))
    else:
        write_batches(tmp_path, batches)
    with pytest.raises(FedSeqError, match=r"data_batch_4: refused, because it asks for (posix|nt)\.system"):
        load_dataset("cifar10", tmp_path)
    assert not trace.exists()
    assert not cache.exists()


@pytest.mark.parametrize(
    "array", [np.array([None, {}], dtype=object), np.arange(4), np.array(["a"]), np.zeros(2, [("a", "u1")])]
)
def test_arrays_of_anything_but_bytes_are_refused(array: np.ndarray) -> None:
    with pytest.raises(FedSeqError, match="not a data batch, or a damaged one"):
        load_batch(pickle.dumps({"data": array}, 4), "batch")


# An object array whose flags deny that it holds objects: numpy would take the raw bytes for addresses of objects.
FORGED = (
    b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01\x85"
    b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08AAAAAAAAtbs."
)
BAD_SHAPE = pickle.dumps({"data": PIXELS}, 4).replace(b"K\x04K\x06\x86", b"K\x05K\x06\x86")
HUGE_MEMO_INDEX = b"\x80\x02}r" + struct.pack("<I", 2**31 - 1) + b"."
HUGE_LENGTH = b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x"
DEEP_NESTING = b"\x80\x02(" + b"(" * 3000 + b"t" * 3000 + b"d."
STATE_ON_A_FUNCTION = b"\x80\x02cnumpy\ndtype\n}X\x05\0\0\0spoilK\x01sb."


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage",
        FORGED,
        BAD_SHAPE,
        HUGE_LENGTH,
        DEEP_NESTING,
        STATE_ON_A_FUNCTION,
        b"\x80\x04N.",
        b"\x80\x05\x97.",
    ],
)
def test_nonsense_is_refused(raw: bytes) -> None:
    with pytest.raises(FedSeqError, match=r"^batch: not a data batch"):
        load_batch(raw, "batch")


def test_huge_memo_index_costs_no_memory() -> None:
    assert load_batch(HUGE_MEMO_INDEX, "batch") == {}


def test_every_truncation_of_a_batch_is_refused() -> None:
    raw = python2_batch(PIXELS, [3, 1, 0, 2], "labels")
    for length in range(len(raw)):
        with pytest.raises(FedSeqError, match=r"^batch: "):
            load_batch(raw[:length], "batch")


def test_one_pickle_cannot_change_how_the_next_is_read() -> None:
    with pytest.raises(FedSeqError):
        load_batch(STATE_ON_A_FUNCTION, "batch")
    assert vars(unpickle._BatchUnpickler._dtype) == vars(unpickle._reconstruct) == {}
