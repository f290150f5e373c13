"""Max-pooling, then ReLU, in one pass over memory instead of several."""

import ctypes
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d

from fedseq.models.kernels import exact


def pool_relu(x: Tensor) -> Tensor:
    """relu(max_pool2d(x, 2)), in a third of the time where there is a kernel for it."""
    fits = exact.in_memory(x) and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    kernel = load() if fits and min(x.shape[2:]) >= 2 else None  # PyTorch has its own words for what is too small
    if kernel is None:
        return torch.relu(max_pool2d(x, 2))
    if torch.is_grad_enabled() and x.requires_grad:
        return _PoolRelu.apply(x, kernel)
    return _forward(kernel, x, None)


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
    kernel = exact.library()
    return kernel if kernel is not None and _keeps_the_bits(kernel) else None


def _keeps_the_bits(kernel: ctypes.CDLL) -> bool:
    """Some compilers take liberties with NaN and -0 unless told otherwise: every window of such numbers is tried."""
    special = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]
    numbers = torch.tensor(special, dtype=torch.float32, device="cpu")
    windows = torch.cartesian_prod(numbers, numbers, numbers, numbers).view(1, -1, 2, 2)
    pooled = _forward(kernel, windows.contiguous(memory_format=torch.channels_last), None)
    return torch.equal(pooled.view(torch.int32), torch.relu(max_pool2d(windows, 2)).view(torch.int32))
