"""Things to send to other processes and machines: a few bytes, and beside them the tensors, which memory can share."""

import io
import mmap
import pickle
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedseq.training.examples import memory_format

_LARGE = 1 << 20


class TensorsApart:
    """For a pickler: plain tensors are left out of the bytes, each once however often the thing holds it."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)  # type: ignore[call-arg]
        self.places: dict[int, int] = {}  # by the tensor's identity
        self.tensors: list[Tensor] = []  # kept, so that no other tensor can get the same identity

    def persistent_id(self, thing: Any) -> tuple[int, bool] | None:
        if type(thing) is not Tensor or thing.requires_grad or thing.dtype is torch.bfloat16:  # which numpy has not
            return None
        if thing.layout is not torch.strided or thing.device.type != "cpu":
            return None
        place = self.places.setdefault(id(thing), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(thing)
        return place, memory_format(thing) is torch.channels_last


class TensorPickler(TensorsApart, pickle.Pickler):
    pass


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, arrays: Iterable[np.ndarray]) -> None:
        super().__init__(io.BytesIO(pickled))
        self.arrays = list(arrays)
        self.tensors: dict[int, Tensor] = {}

    def persistent_load(self, identity: tuple[int, bool]) -> Tensor:
        place, channels_last = identity
        if place not in self.tensors:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
                tensor = torch.from_numpy(self.arrays[place])
            self.tensors[place] = tensor.permute(0, 3, 1, 2) if channels_last else tensor
        return self.tensors[place]


def pack(thing: Any, pickler: type[TensorsApart] = TensorPickler) -> tuple[bytes, list[Tensor]]:
    stream = io.BytesIO()
    packing = pickler(stream)
    packing.dump(thing)  # type: ignore[attr-defined]
    return stream.getvalue(), packing.tensors


def unpack(pickled: bytes, arrays: Iterable[np.ndarray]) -> Any:
    """The thing; its tensors lie where the arrays do."""
    return _Unpickler(pickled, arrays).load()


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers in the order in which they lie in memory, so that pictures laid out once stay so."""
    channels_last = memory_format(tensor) is torch.channels_last
    return (tensor.permute(0, 2, 3, 1) if channels_last else tensor).contiguous().numpy()


def lasting_copy(array: np.ndarray) -> np.ndarray:
    """Large arrays get pages of their own: on the heap, those that clients keep would hold the gaps of the others.

    All pages are asked for at once, which costs less than a fault for each.
    """
    if array.nbytes < _LARGE:
        return array.copy()
    pages = mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, pages)
    copy[...] = array
    return copy
