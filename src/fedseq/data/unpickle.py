"""Reads the pickled batches in which CIFAR is published, without running anything a pickle asks for.

A pickle names functions to call. Here the few names that rebuild a numpy array stand for functions of this file, which
make uint8 arrays from bytes and nothing else; numpy's own would accept crafted states that corrupt memory. Every other
name is refused before it is looked up.
"""

import io
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedseq.errors import FedSeqError

BATCH_LIMIT = 400 * 2**20  # bytes; the largest official batch has 155 million
# All that the standard unpickler and the stand-ins above raise when the bytes make no sense.
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    MemoryError,
    RecursionError,
    struct.error,
)


@dataclass
class _Array:
    """An array between the two steps in which pickle rebuilds it: making it and setting its state."""

    values: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        _version, shape, dtype, fortran_order, raw = state
        if not isinstance(dtype, _Uint8) or not isinstance(raw, bytes):
            raise ValueError("an array that is not made of plain bytes")
        self.values = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


class _Uint8:
    """The only element type. Its state (byte order, flags) says nothing about single bytes."""

    def __setstate__(self, state: tuple) -> None:
        pass


def _reconstruct(*_class_shape_and_type: object) -> _Array:
    return _Array()


def _dtype(code: str | bytes, *_align_and_copy: object) -> _Uint8:
    if code not in ("u1", b"u1"):
        raise ValueError(f"an array of type {code!r}, not of unsigned bytes")
    return _Uint8()


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in the old pickle protocols."""
    if encoding != "latin1":
        raise ValueError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _reconstruct,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _BatchUnpickler(pickle._Unpickler):
    """Built on the one written in Python, as that in C reserves whatever memory a pickle's memo numbers ask for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise FedSeqError(f"it asks for {module}.{name}, which no data batch needs; nothing of it was run")
        return partial(_STAND_INS[module, name])  # a new object each time: a pickle can set attributes of what it gets


def load_batch(raw: bytes, where: str) -> dict[str, Any]:
    """The pickled dictionary, its keys as text and its arrays as uint8."""
    if len(raw) > BATCH_LIMIT:
        raise FedSeqError(f"{where}: more than {BATCH_LIMIT} bytes, too many for a data batch.")
    try:
        batch = _BatchUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except FedSeqError as refusal:
        raise FedSeqError(f"{where}: refused, because {refusal}.") from refusal
    except _DAMAGE as error:
        raise FedSeqError(f"{where}: not a data batch, or a damaged one ({error}).") from error
    if not isinstance(batch, dict):
        raise FedSeqError(f"{where}: not a data batch: it holds a {type(batch).__name__}, not a dictionary.")
    plain = {key: value.values if isinstance(value, _Array) else value for key, value in batch.items()}
    return {_text(key): value for key, value in plain.items() if isinstance(key, str | bytes)}


def _text(key: str | bytes) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else key
