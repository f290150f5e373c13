"""Messages between processes: the small parts through a pipe, the numbers through memory that both sides see.

The memory is an anonymous file (memfd): it has no name, so nothing can be left behind in /dev/shm whatever happens to
the processes, and it can grow after they were started.
"""

import io
import mmap
import os
import pickle
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 64
_LARGE = 1 << 20


class Mailbox:
    """Room for one message at a time. It is made before the process that shares it."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.memfd_create("fedseq-mailbox"), "r+b", buffering=0)
        self.memory: mmap.mmap | None = None

    def write(self, message: Any) -> bytes:
        """Put the message's tensors into the memory; the bytes returned tell the other side how to read it."""
        arrays: list[pickle.PickleBuffer] = []
        rest = io.BytesIO()
        _TensorPickler(rest, protocol=5, buffer_callback=arrays.append).dump(message)
        raw = [array.raw() for array in arrays]
        spans, end = [], 0
        for array in raw:
            spans.append((end, end + array.nbytes))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        view = self._view(end)
        for (first, last), array in zip(spans, raw, strict=True):
            view[first:last] = array
        return pickle.dumps((rest.getvalue(), spans, end))

    def read(self, header: bytes, copy: bool) -> Any:
        """The message; without `copy` its tensors lie in the mailbox and are good until the next message."""
        rest, spans, end = pickle.loads(header)
        view = self._view(end)
        parts = (view[first:last] for first, last in spans)
        return pickle.loads(rest, buffers=map(copied, parts) if copy else parts)

    def _view(self, size: int) -> memoryview:
        if self.memory is None or len(self.memory) < size:
            size = max(size, mmap.PAGESIZE)
            if os.fstat(self.file.fileno()).st_size < size:
                self.file.truncate(size)
            self.memory = mmap.mmap(self.file.fileno(), size)
        return memoryview(self.memory)

    def close(self) -> None:
        self.file.close()
        self.memory = None


def copied(part: memoryview) -> bytearray | mmap.mmap:
    """Large arrays get pages of their own: on the heap, those that clients keep would hold the gaps of the others.

    All pages are asked for at once, which costs less than a fault for each.
    """
    if len(part) < _LARGE:
        return bytearray(part)
    pages = mmap.mmap(-1, len(part), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
    pages[:] = part
    return pages


class _TensorPickler(pickle.Pickler):
    """Tensors travel as numpy arrays, whose numbers pickle can leave out of the stream."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Tensor) and thing.dtype is not torch.bfloat16:  # which numpy has not
            return torch.from_numpy, (thing.detach().numpy(),)
        return NotImplemented
