"""Things to send to other machines: a few bytes, and beside them the tensors, which a store can share as arrays.

Functions and classes that another machine can't import, such as those of a notebook, travel inside the bytes.
"""

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from ray import cloudpickle
from torch import Tensor

from fedseq.engines.mailbox import copied
from fedseq.examples import memory_format


class Parcel(NamedTuple):
    pickled: bytes
    tensors: list[Tensor]  # each once, however often the thing holds it


def pack(thing: Any) -> Parcel:
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(thing)
    return Parcel(stream.getvalue(), list(pickler.tensors.values()))


def unpack(pickled: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """The thing; its tensors lie where the arrays do."""
    return _Unpickler(io.BytesIO(pickled), arrays).load()


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers in the order in which they lie in memory, so that pictures laid out once stay so."""
    return (tensor.permute(0, 2, 3, 1) if _is_channels_last(tensor) else tensor).contiguous().numpy()


def _is_channels_last(tensor: Tensor) -> bool:
    return memory_format(tensor) is torch.channels_last


class _Pickler(cloudpickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.tensors: dict[int, Tensor] = {}  # by identity; kept, so that no other one can get the same

    def persistent_id(self, thing: Any) -> tuple[int, bool] | None:
        """Plain tensors are left out of the bytes; what numpy does not know is not."""
        if type(thing) is not Tensor or thing.requires_grad or thing.dtype is torch.bfloat16:
            return None
        if thing.layout is not torch.strided or thing.device.type != "cpu":
            return None
        self.tensors.setdefault(id(thing), thing)
        return list(self.tensors).index(id(thing)), _is_channels_last(thing)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(stream)
        self.arrays = arrays

    def persistent_load(self, identity: tuple[int, bool]) -> Tensor:
        place, channels_last = identity
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
            tensor = torch.from_numpy(self.arrays[place])
        return tensor.permute(0, 3, 1, 2) if channels_last else tensor


def lasting_copy(array: np.ndarray) -> np.ndarray:
    """For numbers that may be kept for long: neither the store nor the heap holds on to memory for them."""
    if not array.nbytes:
        return array.copy()
    return np.frombuffer(copied(array.data.cast("B")), array.dtype).reshape(array.shape)
