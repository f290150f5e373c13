"""Messages between processes: a few bytes through a pipe, all else through memory that both sides see.

The memory is an anonymous file (memfd): it has no name, so nothing can be left behind in /dev/shm whatever happens to
the processes, and it can grow after they were started.
"""

import mmap
import os
import pickle
from typing import Any

import numpy as np
from torch import Tensor

from fedseq.engines.parcels import as_array, copy_numbers, lasting_copy, pack, unpack

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
