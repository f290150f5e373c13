"""Reads the pickles in which CIFAR and the smartwatch data are published, without running anything a pickle asks for.

A pickle names functions to call. Here the few names that rebuild a numpy array stand for functions of this file, which
make arrays of plain numbers from bytes and nothing else; numpy's own would accept crafted states that corrupt memory.
Every other name is refused before it is looked up.
"""

import io
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedseq.basics.errors import FedSeqError

BATCH_LIMIT = 400 * 2**20  # bytes; the largest official batch has 155 million
# All that the standard unpickler and the stand-ins below raise when the bytes make no sense.
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


_BYTES = {"u1": "unsigned bytes"}
_THINGS = "O8"  # an array of Python objects, which a pickle holds as a list
_NUMBERS = {**_BYTES, **dict.fromkeys(("i4", "i8", "f4", "f8"), "numbers"), _THINGS: "lists"}


@dataclass
class _Array:
    """An array between the two steps in which pickle rebuilds it: making it and setting its state."""

    values: Any = None  # an array of numbers, or the list of an array of objects

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran_order, raw = state
        if not isinstance(dtype, _Type) or not isinstance(raw, list if dtype.code == _THINGS else bytes):
            raise ValueError("an array that is not made of plain bytes")
        if isinstance(raw, list):
            self.values = raw
        else:
            self.values = np.frombuffer(raw, f"<{dtype.code}").reshape(shape, order="F" if fortran_order else "C")


@dataclass
class _Type:
    """An element type. Of its state only the byte order matters; the flags say nothing about plain numbers."""

    code: str

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if self.code[1] != "1" and state[1] not in ("<", b"<", "|", b"|"):
            raise ValueError("an array of numbers in another byte order than usual")


def _reconstruct(*_class_shape_and_type: object) -> _Array:
    return _Array()


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _reconstruct,
}
# The instructions by which dictionaries of lists and arrays are written. Others build sets and objects, or reserve
# whatever memory a few bytes ask for.
_NEEDED = (
    pickle.PROTO, pickle.STOP, pickle.FRAME, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.NONE,
    pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG,
    pickle.LONG1, pickle.LONG4, pickle.FLOAT, pickle.BINFLOAT, pickle.STRING, pickle.BINSTRING,
    pickle.SHORT_BINSTRING, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8, pickle.UNICODE,
    pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8, pickle.EMPTY_LIST, pickle.LIST,
    pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2,
    pickle.TUPLE3, pickle.EMPTY_DICT, pickle.DICT, pickle.SETITEM, pickle.SETITEMS, pickle.GET, pickle.BINGET,
    pickle.LONG_BINGET, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.GLOBAL,
    pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BUILD,
)  # fmt: skip


class _Instructions(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError("an instruction that no data batch needs")


_STANDARD: Any = pickle._Unpickler


class _BatchUnpickler(_STANDARD):  # type: ignore[misc]
    """Built on the one written in Python, as that in C reserves whatever memory a pickle's memo numbers ask for."""

    dispatch = _Instructions({code[0]: _STANDARD.dispatch[code[0]] for code in _NEEDED})

    def __init__(self, raw: bytes, types: Mapping[str, str]) -> None:
        super().__init__(io.BytesIO(raw), encoding="bytes")
        self.types = types
        self.left = len(raw)  # bytes that may still be made of texts: a text can be turned into bytes again and again

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) == ("numpy", "dtype"):
            return self._dtype
        if (module, name) not in _STAND_INS:
            raise FedSeqError(f"it asks for {module}.{name}, which no data batch needs; nothing of it was run")
        return _STAND_INS[module, name]

    def _encode(self, text: str, encoding: str) -> bytes:
        """How Python 3 writes bytes in the old pickle protocols."""
        self.left -= len(text)
        if encoding != "latin1" or self.left < 0:
            raise ValueError("bytes in another encoding than latin1, or more of them than the file has")
        return text.encode("latin1")

    def _dtype(self, code: object, *_align_and_copy: object) -> _Type:
        plain = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(plain, str) or plain not in self.types:
            raise ValueError(f"an array of another type than {', '.join(dict.fromkeys(self.types.values()))}")
        return _Type(plain)

    def load_build(self) -> None:
        if not isinstance(self.stack[-2], _Array | _Type):  # a pickle must not change our functions
            raise ValueError("a state for something that has none")
        _STANDARD.load_build(self)

    dispatch[pickle.BUILD[0]] = load_build

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        _STANDARD.load_setitem(self)

    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        _STANDARD.load_setitems(self)

    dispatch[pickle.SETITEMS[0]] = load_setitems

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        _STANDARD.load_dict(self)

    dispatch[pickle.DICT[0]] = load_dict


def _check_keys(keys: Iterable[object]) -> None:
    """A tuple of tuples of tuples takes a few bytes to write, and longer to look up than anyone can wait."""
    if not all(isinstance(key, str | bytes | int) for key in keys):
        raise ValueError("a dictionary whose keys are not names")


def load_batch(raw: bytes, where: str) -> dict[str, Any]:
    """The pickled dictionary, its keys as text and its arrays as uint8."""
    return _as_dictionary(_load(raw, where, _BYTES), where)


def load_record(raw: bytes, where: str) -> dict[str, Any]:
    """A dictionary that numpy saved as an object, in an .npy file: its arrays are of numbers, or lists of such."""
    header = raw.find(b"\n") + 1
    if not raw.startswith(b"\x93NUMPY") or b"|O" not in raw[:header]:
        raise FedSeqError(f"{where}: not an .npy file that holds an object.")
    saved = _load(raw[header:], where, _NUMBERS)
    held = saved.values if isinstance(saved, _Array) else None
    record = _as_dictionary(held[0] if isinstance(held, list) and len(held) == 1 else held, where)
    return {
        key: [_plain(item) for item in value] if isinstance(value, list) else value for key, value in record.items()
    }


def _load(raw: bytes, where: str, types: Mapping[str, str]) -> Any:
    if len(raw) > BATCH_LIMIT:
        raise FedSeqError(f"{where}: more than {BATCH_LIMIT} bytes, too many for a data batch.")
    try:
        return _BatchUnpickler(raw, types).load()
    except FedSeqError as refusal:
        raise FedSeqError(f"{where}: refused, because {refusal}.") from refusal
    except _DAMAGE as error:
        raise FedSeqError(f"{where}: not a data batch, or a damaged one ({str(error)[:200]}).") from error


def _as_dictionary(batch: Any, where: str) -> dict[str, Any]:
    if not isinstance(batch, dict):
        raise FedSeqError(f"{where}: not a data batch: it holds a {type(batch).__name__}, not a dictionary.")
    return {_text(key): _plain(value) for key, value in batch.items() if isinstance(key, str | bytes)}


def _plain(value: Any) -> Any:
    return value.values if isinstance(value, _Array) else value


def _text(key: str | bytes) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else key
