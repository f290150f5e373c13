"""A step of SGD with weight decay, in one pass over memory instead of two."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from fedseq.models.kernels import exact


def descend(weights: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
    """weights <- weights - lr * (gradient + weight_decay * weights); the gradient may be changed too."""
    alike = exact.in_memory(weights) and exact.in_memory(gradient) and weights.stride() == gradient.stride()
    kernel = load() if alike and (weights.is_contiguous() or exact.channels_last(weights)) else None
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
def load() -> ctypes.CDLL | None:
    """The kernel, if it gives the bits of this PyTorch, which computes whole vectors and what is left over apart."""
    kernel = exact.library()
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
