"""Kernels that give PyTorch's bits in fewer passes over memory. They are a matter of speed alone: where one cannot be
used (no compiler, another device, number format or memory layout) PyTorch computes the same.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fedseq.models.kernels import compiler

_SOURCES = [Path(__file__).with_name(name) for name in ("pool.c", "descend.c", "crop.c")]
_FUNCTIONS = {
    "pool_relu": [ctypes.c_void_p] * 3 + [ctypes.c_ssize_t] * 4,
    "pool_relu_backward": [ctypes.c_void_p] * 3 + [ctypes.c_ssize_t] * 4,
    "descend": [ctypes.c_void_p] * 2 + [ctypes.c_float] * 2 + [ctypes.c_ssize_t],
    "crop_flip": [ctypes.c_void_p] * 5 + [ctypes.c_ssize_t] * 4,
}


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; called before workers are forked it is done once for all of them."""
    try:
        kernels = compiler.load("exact", _SOURCES)
    except compiler.UnavailableError:
        return None
    for name, types in _FUNCTIONS.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = types, None
    return kernels


def in_memory(x: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Numbers that C can read; what only looks at the operations (a tracer, torch.func) is shown PyTorch's."""
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype is dtype
    )


def channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
