"""Max-pooling, then ReLU, in one pass over memory instead of several. It is a matter of speed alone: where the kernel
cannot be used (no compiler, another device, number format or memory layout) PyTorch computes the same bits.
"""

import ctypes
import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d

from fedseq.models.kernels import compiler

_SOURCE = Path(__file__).with_name("pool.c")


def pool_relu(x: Tensor) -> Tensor:
    """relu(max_pool2d(x, 2)), in a third of the time where there is a kernel for it."""
    fits = in_memory(x) and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    kernel = load() if fits and min(x.shape[2:]) >= 2 else None  # PyTorch has its own words for what is too small
    if kernel is None:
        return torch.relu(max_pool2d(x, 2))
    if torch.is_grad_enabled() and x.requires_grad:
        return _PoolRelu.apply(x, kernel)
    return _forward(kernel, x, None)


def in_memory(x: Tensor) -> bool:
    """Numbers that C can read; what only looks at the operations (a tracer, torch.func) is shown PyTorch's."""
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype is torch.float32
    )


class _PoolRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: ctypes.CDLL) -> Tensor:
        codes = x.new_empty(_pooled(x), dtype=torch.uint8)
        ctx.shape, ctx.kernel = x.shape, kernel
        ctx.save_for_backward(codes)
        return _forward(kernel, x, codes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        (codes,) = ctx.saved_tensors
        above = above.contiguous(memory_format=torch.channels_last)
        gradient = _empty(ctx.shape)
        if any(side % 2 for side in ctx.shape[2:]):  # then some pixels belong to no window
            gradient.zero_()
        ctx.kernel.pool_relu_backward(above.data_ptr(), codes.data_ptr(), gradient.data_ptr(), *_sides(gradient))
        return gradient, None


def _forward(kernel: ctypes.CDLL, x: Tensor, codes: Tensor | None) -> Tensor:
    pooled = _empty(_pooled(x))
    kernel.pool_relu(x.data_ptr(), pooled.data_ptr(), None if codes is None else codes.data_ptr(), *_sides(x))
    return pooled


def _empty(shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu", memory_format=torch.channels_last)


def _pooled(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _sides(x: Tensor) -> tuple[int, ...]:
    images, channels, height, width = x.shape
    return images, height, width, channels


@cache
def load() -> ctypes.CDLL | None:
    """The compiled kernel; called before workers are forked it is done once for all of them."""
    try:
        library = compiler.load("pool", [_SOURCE])
    except compiler.UnavailableError:
        return None
    pointers, sizes = [ctypes.c_void_p] * 3, [ctypes.c_ssize_t] * 4
    for function in (library.pool_relu, library.pool_relu_backward):
        function.argtypes, function.restype = [*pointers, *sizes], None
    return library if _keeps_the_bits(library) else None


def _keeps_the_bits(kernel: ctypes.CDLL) -> bool:
    """Some compilers take liberties with NaN and -0 unless told otherwise: every window of such numbers is tried."""
    special = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]
    numbers = torch.tensor(special, dtype=torch.float32, device="cpu")
    windows = torch.cartesian_prod(numbers, numbers, numbers, numbers).view(1, -1, 2, 2)
    pooled = _forward(kernel, windows.contiguous(memory_format=torch.channels_last), None)
    return torch.equal(pooled.view(torch.int32), torch.relu(max_pool2d(windows, 2)).view(torch.int32))
