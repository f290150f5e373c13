"""Kernels that give PyTorch's bits in fewer passes over memory: max-pooling with ReLU, a step of SGD, cropping.

They only change the speed: where one cannot be used (no compiler, another device, number format or memory layout)
PyTorch computes the same.
"""

import ctypes
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d

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
    """The compiled kernels. Called before workers are forked, it compiles and loads them once for all workers."""
    try:
        kernels = compiler.load("exact", _SOURCES)
    except compiler.UnavailableError:
        return None
    for name, types in _FUNCTIONS.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = types, None
    return kernels


def in_memory(x: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """True if C can read the tensor's numbers; tracers and torch.func, which only watch operations, get PyTorch's."""
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


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu", memory_format=torch.channels_last)


# --- max-pooling, then ReLU ------------------------------------------------------------------------------------------


def pool_relu(x: Tensor) -> Tensor:
    """relu(max_pool2d(x, 2)), in a third of the time where there is a kernel for it."""
    fits = in_memory(x) and channels_last(x)
    kernel = load() if fits and min(x.shape[2:]) >= 2 else None  # PyTorch refuses what is too small
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
        gradient = empty(*ctx.shape)
        if any(side % 2 for side in ctx.shape[2:]):  # some pixels belong to no window
            gradient.zero_()
        ctx.kernel.pool_relu_backward(above.data_ptr(), codes.data_ptr(), gradient.data_ptr(), *_sides(gradient))
        return gradient, None


def _forward(kernel: ctypes.CDLL, x: Tensor, codes: Tensor | None) -> Tensor:
    pooled = empty(*_pooled(x))
    kernel.pool_relu(x.data_ptr(), pooled.data_ptr(), None if codes is None else codes.data_ptr(), *_sides(x))
    return pooled


def _pooled(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _sides(x: Tensor) -> tuple[int, ...]:
    images, channels, height, width = x.shape
    return images, height, width, channels


@cache
def load() -> ctypes.CDLL | None:
    """The kernels, if their pooling gives PyTorch's bits for every window of special numbers.

    Some compilers take liberties with NaN and -0 unless told otherwise.
    """
    kernel = library()
    if kernel is None:
        return None
    special = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]
    numbers = torch.tensor(special, dtype=torch.float32, device="cpu")
    windows = torch.cartesian_prod(numbers, numbers, numbers, numbers).view(1, -1, 2, 2)
    pooled = _forward(kernel, windows.contiguous(memory_format=torch.channels_last), None)
    same = torch.equal(pooled.view(torch.int32), torch.relu(max_pool2d(windows, 2)).view(torch.int32))
    return kernel if same else None


# --- a step of SGD with weight decay ----------------------------------------------------------------------------------


def descend(weights: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
    """weights <- weights - lr * (gradient + weight_decay * weights), in one pass; the gradient may be changed too."""
    alike = in_memory(weights) and in_memory(gradient) and weights.stride() == gradient.stride()
    kernel = load_descent() if alike and (weights.is_contiguous() or channels_last(weights)) else None
    if kernel is None:
        _by_torch(weights, gradient, lr, weight_decay)
    else:
        _by_kernel(kernel, weights, gradient, lr, weight_decay)


def _by_torch(weights: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
    if weight_decay:
        gradient.add_(weights, alpha=weight_decay)
    weights.sub_(gradient, alpha=lr)


def _by_kernel(kernel: ctypes.CDLL, weights: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
    kernel.descend(weights.data_ptr(), gradient.data_ptr(), lr, weight_decay, weights.numel())


@cache
def load_descent() -> ctypes.CDLL | None:
    """The kernels, if their step gives PyTorch's bits, for whole vectors and for the numbers left over."""
    kernel = library()
    if kernel is None:
        return None
    random = torch.Generator().manual_seed(0)
    for weight_decay in (0.0, 4e-4):
        for count in (1, 7, 1000 + 63):
            weights, gradient = (torch.randn(count, generator=random) for _ in range(2))
            expected = weights.clone()
            _by_torch(expected, gradient.clone(), 0.01, weight_decay)
            _by_kernel(kernel, weights, gradient, 0.01, weight_decay)
            if not torch.equal(weights.view(torch.int32), expected.view(torch.int32)):
                return None
    return kernel


# --- pictures shifted and mirrored ------------------------------------------------------------------------------------


def crop_flip(x: Tensor, down: np.ndarray, right: np.ndarray, flipped: np.ndarray) -> Tensor | None:
    """Shift pictures, and mirror those in `flipped`; None if there is no kernel for them.

    Pixel (r, c) of picture i becomes x[i, :, r + down[i], c + right[i]], and zero outside the picture.
    """
    kernel = library() if in_memory(x, torch.uint8) and channels_last(x) else None
    if kernel is None:
        return None
    count, channels, height, width = x.shape
    out = torch.empty_like(x)
    down, right = (np.ascontiguousarray(shift, dtype=np.int64) for shift in (down, right))
    flipped = np.ascontiguousarray(flipped, dtype=np.uint8)
    pointers = (down.ctypes.data, right.ctypes.data, flipped.ctypes.data)
    kernel.crop_flip(x.data_ptr(), out.data_ptr(), *pointers, count, height, width, channels)
    return out
