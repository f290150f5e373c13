"""Messages between processes and machines: a few bytes, and beside them tensors in memory that both sides see.

A mailbox's memory is an anonymous file (memfd): it has no name, so nothing can be left behind in /dev/shm whatever
happens to the processes, and it can grow after they were started.
"""

import io
import mmap
import os
import pickle
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedseq.training.examples import memory_format

_LARGE = 1 << 20
_SPARE = 1 << 29  # bytes that are kept for each size of copies: those of a round's clients
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # Linux alone has it
_spare_pages: dict[int, deque[mmap.mmap]] = {}


class TensorsApart:
    """For a pickler: plain tensors are left out of the bytes, each once however often the thing holds it."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)  # type: ignore[call-arg]
        self.places: dict[int, int] = {}  # by the tensor's identity
        self.tensors: list[Tensor] = []  # kept, so that no other tensor can get the same identity

    def persistent_id(self, thing: Any) -> tuple[int, bool] | None:
        if type(thing) is not Tensor or thing.requires_grad or thing.dtype is torch.bfloat16:  # which numpy has not
            return None
        if thing.layout is not torch.strided:
            return None
        place = self.places.setdefault(id(thing), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(thing)
        return place, memory_format(thing) is torch.channels_last


class TensorPickler(TensorsApart, pickle.Pickler):
    pass


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, arrays: Iterable[np.ndarray], device: str) -> None:
        super().__init__(io.BytesIO(pickled))
        self.arrays, self.device = list(arrays), device
        self.tensors: dict[int, Tensor] = {}

    def persistent_load(self, identity: tuple[int, bool]) -> Tensor:
        place, channels_last = identity
        if place not in self.tensors:
            tensor = _tensor_on(self.arrays[place]).to(self.device)
            self.tensors[place] = tensor.permute(0, 3, 1, 2) if channels_last else tensor
        return self.tensors[place]


def pack(thing: Any, pickler: type[TensorsApart] = TensorPickler) -> tuple[bytes, list[Tensor]]:
    stream = io.BytesIO()
    packing = pickler(stream)
    packing.dump(thing)  # type: ignore[attr-defined]
    return stream.getvalue(), packing.tensors


def unpack(pickled: bytes, arrays: Iterable[np.ndarray], device: str = "cpu") -> Any:
    """The thing; its tensors lie where the arrays do, or on another device."""
    return _Unpickler(pickled, arrays, device).load()


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers in the order in which they lie in memory, so that pictures laid out once stay so."""
    channels_last = memory_format(tensor) is torch.channels_last
    return (tensor.permute(0, 2, 3, 1) if channels_last else tensor).contiguous().cpu().numpy()


def lasting_copy(array: np.ndarray) -> np.ndarray:
    """Large arrays get pages of their own: on the heap, those that clients keep would hold the gaps of the others.

    Pages of a copy that is gone serve the next one of its size, as fresh ones cost four times as much as the copying.
    """
    if array.nbytes < _LARGE:
        return array.copy()
    spare = _spare_pages.setdefault(array.nbytes, deque(maxlen=_SPARE // array.nbytes))
    pages = spare.pop() if spare else _fresh_pages(array.nbytes)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, pages)
    copy_numbers(array, copy)
    weakref.finalize(copy, spare.append, pages).atexit = False
    return copy


def forget_spare_pages() -> None:
    _spare_pages.clear()


def _fresh_pages(size: int) -> mmap.mmap:
    """All of them are asked for at once, which costs less than a fault for each."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _POPULATE)


def copy_numbers(source: np.ndarray, target: np.ndarray) -> None:
    """PyTorch copies large arrays in half of numpy's time."""
    torch.from_numpy(target).copy_(_tensor_on(source))


def _tensor_on(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(array)


_ALIGNMENT = 64


class Mailbox:
    """Room for one message at a time. It is made before the process that shares it."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.memfd_create("fedseq-mailbox"), "r+b", buffering=0)
        self.memory: mmap.mmap | None = None
        self.lying: tuple[Tensor, int] | None = None  # at the beginning, if the other side leaves it alone; its version

    def write(self, message: Any, unchanged: Tensor | None = None) -> bytes:
        """Put the message into the memory; the bytes returned tell the other side where it is.

        They are so few that a pipe always takes them, even if nobody reads at its other end. `unchanged` is a tensor of
        the message that the other side does not write to: where it lies there already, it is not copied again, and the
        other side has it in its cache.
        """
        pickled, tensors = pack(message)
        arrays = [as_array(tensor) for tensor in tensors]
        layout, end = [], 0
        for array in arrays:
            layout.append((array.shape, array.dtype.str, end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        rest = pickle.dumps((pickled, layout))
        memory = self._memory(end + len(rest))
        lies_there = self._lies_there(tensors[0] if tensors and tensors[0] is unchanged else None)
        for (shape, dtype, first), array in list(zip(layout, arrays, strict=True))[lies_there:]:
            copy_numbers(array, np.ndarray(shape, dtype, memory, first))
        memory[end : end + len(rest)] = rest
        return pickle.dumps((end, end + len(rest)))

    def read(self, where: bytes, copy: bool, device: str = "cpu") -> Any:
        """The message; without `copy` its tensors may lie in the mailbox, and are good until the next message."""
        first, last = pickle.loads(where)
        memory = self._memory(last)
        pickled, layout = pickle.loads(memory[first:last])
        arrays: list[np.ndarray] = [np.ndarray(shape, dtype, memory, offset) for shape, dtype, offset in layout]
        return unpack(pickled, map(lasting_copy, arrays) if copy else arrays, device)

    def _lies_there(self, tensor: Tensor | None) -> bool:
        """Whether the memory begins with this very tensor, as it is now; from now on it does."""
        before, self.lying = self.lying, None if tensor is None else (tensor, tensor._version)
        return tensor is not None and before is not None and before[0] is tensor and before[1] == tensor._version

    def _memory(self, size: int) -> mmap.mmap:
        if self.memory is None or len(self.memory) < size:
            if os.fstat(self.file.fileno()).st_size < size:
                self.file.truncate(size)
            self.memory = mmap.mmap(self.file.fileno(), size)
        return self.memory

    def close(self) -> None:
        self.file.close()
        self.memory = None
