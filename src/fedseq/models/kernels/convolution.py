"""5x5 convolution, max-pooling and ReLU as one layer, computed by PyTorch or by our own C kernels.

Ours are two to three times as fast: they convolve by a discrete Fourier transform (transform.h derives it). The two do
not give the same bits, so the choice is part of a run's identity. It depends on `fast` and on sizes alone: if `fast` is
asked for and the kernels cannot be used, that is an error and not a silent change of results.
"""

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input
from torch.nn.modules import module as torch_module

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.models.kernels import compiler
from fedseq.models.kernels.exact import empty, in_memory, pool_relu

KERNELS = ("fast", "torch")
_SOURCES = [Path(__file__).with_name(name) for name in ("narrow.c", "winners.c", "wide.c", "pair.c")]
_BLOCK, _SIDE, _TAPS = 16, 14, 5  # channels in a block, pixels along a transform, along a kernel
_LEAST_SIDE = 10  # fewer pixels are faster the direct way
# The C functions: how many pointers they take, then how many sizes; without pointers they return a number of floats.
_FUNCTIONS = {
    "wide_forward": (7, 5),
    "wide_backward": (8, 5),
    "narrow_forward": (6, 5),
    "narrow_backward": (6, 5),
    "pair_forward": (10, 6),
    "pair_backward": (11, 6),
    "wide_halves_size": (0, 2),
    "wide_forward_scratch": (0, 3),
    "wide_backward_scratch": (0, 3),
    "narrow_forward_scratch": (0, 2),
    "narrow_backward_scratch": (0, 4),
    "pair_forward_scratch": (0, 6),
    "pair_backward_scratch": (0, 6),
}
# What `fingerprint` gives on every CPU; a library with another is not used.
_EXPECTED = "2ea8e48e39cf3e69c57ec2488796b8a6"


class ConvPoolRelu(nn.Conv2d):
    """relu(max_pool2d(conv2d(x), 2)). Parameters and initial weights are those of nn.Conv2d."""

    fast: bool = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.takes(x, tuple(x.shape)):
            return pool_relu(super().forward(x))
        layer = _Narrow if self.in_channels < _BLOCK else _Wide
        return layer.apply(laid(x), *self.factors(), library())

    def takes(self, x: Tensor, shape: tuple[int, ...]) -> bool:
        """True if the fast kernels compute inputs of this shape, made of `x` or equal to it."""
        readable = in_memory(x) and in_memory(self.weight.data) and not torch.is_autocast_enabled("cpu")
        return self.fast and readable and supports(self, shape)

    def factors(self) -> tuple[Tensor, Tensor]:
        """Weights and bias as the kernels read them."""
        bias = self.weight.new_zeros(self.out_channels) if self.bias is None else self.bias
        return laid(self.weight), bias.contiguous()


def supports(layer: nn.Conv2d, shape: tuple[int, ...]) -> bool:
    """True if the fast kernels can compute this layer on pictures of shape (..., channels, height, width)."""
    if len(shape) != 4 or not shape[0]:
        return False
    height, width = shape[2:]
    plain = (
        layer.kernel_size == (_TAPS, _TAPS)
        and layer.padding in ((0, 0), "valid")
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
    )
    if not plain or shape[1] != layer.in_channels or layer.out_channels % _BLOCK or min(height, width) < _LEAST_SIDE:
        return False
    return layer.in_channels in (1, 3) or (layer.in_channels % _BLOCK == 0 and max(height, width) <= _SIDE)


def obstacle(module: nn.Module, x: Tensor) -> str | None:
    """Why the fast kernels cannot be used for a module with this input; None if they compute at least one layer."""
    fitting: list[bool] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs: fitting.append(supports(layer, tuple(inputs[0].shape))))
        for layer in module.modules()
        if isinstance(layer, ConvPoolRelu)
    ]
    if hooks and x.device.type == "cpu":
        with torch.no_grad():
            module.eval()(x)
    for hook in hooks:
        hook.remove()
    if not any(fitting):
        return "the model has no layer that they compute, or is not on the CPU"
    return available()


def choose(module: nn.Module, kernels: str) -> None:
    """Let these kernels ("fast" or "torch") compute the module's convolutions from now on, where both can."""
    if kernels not in KERNELS:
        raise unknown("kernels", kernels, KERNELS)
    if kernels == "fast":
        library()  # an error now is better than other numbers later
    for layer in module.modules():
        if isinstance(layer, ConvPoolRelu):
            layer.fast = kernels == "fast"


def available() -> str | None:
    """None if the fast kernels can be used here, else the reason why not."""
    try:
        _checked()
    except compiler.UnavailableError as reason:
        return str(reason)
    return None


@cache
def _checked() -> ctypes.CDLL:
    kernels = declare(compiler.load("convolution", _SOURCES))
    if fingerprint(kernels) != _EXPECTED:
        raise compiler.UnavailableError("compiled here they give other numbers than elsewhere")
    return kernels


def library() -> ctypes.CDLL:
    """The fast kernels, or an error that says why there are none."""
    try:
        return _checked()
    except compiler.UnavailableError as reason:
        raise FedSeqError(
            f"the fast kernels cannot be used here: {reason}. A run's results depend on its kernels: "
            "make them available wherever it is computed, or start a run with --kernels torch."
        ) from None


def declare(kernels: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions declared."""
    for name, (pointers, sizes) in _FUNCTIONS.items():
        function = getattr(kernels, name)
        function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_ssize_t] * sizes
        function.restype = None if pointers else ctypes.c_ssize_t
    return kernels


def laid(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def scratch_of(floats: int) -> Tensor:
    return torch.empty(floats, dtype=torch.float32, device="cpu")


def pooled(x: Tensor, outputs: int) -> tuple[int, int, int, int]:
    return len(x), outputs, (x.shape[2] - _TAPS + 1) // 2, (x.shape[3] - _TAPS + 1) // 2


class _Wide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, kernels: ctypes.CDLL) -> Tensor:
        (count, inputs, height, width), outputs = x.shape, len(weight)
        y, codes = empty(*pooled(x, outputs)), empty(*pooled(x, outputs), dtype=torch.uint8)
        halves = scratch_of(kernels.wide_halves_size(count, inputs))
        scratch = scratch_of(kernels.wide_forward_scratch(count, inputs, outputs))
        pointers = [tensor.data_ptr() for tensor in (x, weight, bias, y, codes, halves, scratch)]
        kernels.wide_forward(*pointers, count, height, width, inputs, outputs)
        ctx.save_for_backward(codes, halves, weight)
        ctx.sizes, ctx.kernels = (count, height, width, inputs, outputs), kernels
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        codes, halves, weight = ctx.saved_tensors
        count, height, width, inputs, outputs = ctx.sizes
        above, bias_gradient = laid(above), scratch_of(outputs)
        x_gradient = empty(count, inputs, height, width) if ctx.needs_input_grad[0] else None
        weight_gradient = empty(*weight.shape) if ctx.needs_input_grad[1] else None
        scratch = scratch_of(ctx.kernels.wide_backward_scratch(count, inputs, outputs))
        tensors = (above, codes, halves, weight, bias_gradient, weight_gradient, x_gradient, scratch)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        ctx.kernels.wide_backward(*pointers, *ctx.sizes)
        return x_gradient, weight_gradient, bias_gradient, None


class _Narrow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, kernels: ctypes.CDLL) -> Tensor:
        (count, inputs, height, width), outputs = x.shape, len(weight)
        y, codes = empty(*pooled(x, outputs)), empty(*pooled(x, outputs), dtype=torch.uint8)
        scratch = scratch_of(kernels.narrow_forward_scratch(inputs, outputs))
        pointers = [tensor.data_ptr() for tensor in (x, weight, bias, y, codes, scratch)]
        kernels.narrow_forward(*pointers, count, height, width, inputs, outputs)
        ctx.save_for_backward(x, codes, weight)
        ctx.kernels = kernels
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        x, codes, weight = ctx.saved_tensors
        (count, inputs, height, width), outputs = x.shape, len(weight)
        above, bias_gradient, weight_gradient = laid(above), scratch_of(outputs), empty(*weight.shape)
        scratch = scratch_of(ctx.kernels.narrow_backward_scratch(height, width, inputs, outputs))
        tensors = (x, above, codes, bias_gradient, weight_gradient, scratch)
        pointers = [tensor.data_ptr() for tensor in tensors]
        ctx.kernels.narrow_backward(*pointers, count, height, width, inputs, outputs)
        x_gradient = _picture_gradient(x, above, codes, weight) if ctx.needs_input_grad[0] else None
        return x_gradient, weight_gradient, bias_gradient, None


def _picture_gradient(x: Tensor, above: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a first layer's input, which has no kernel as training never needs it."""
    *_, tall, wide = above.shape
    spread = above.new_zeros(len(x), len(weight), x.shape[2] - _TAPS + 1, x.shape[3] - _TAPS + 1)
    for which in range(4):
        window = spread[:, :, which // 2 : 2 * tall : 2, which % 2 : 2 * wide : 2]
        window.copy_(torch.where(codes == which, above, 0.0))
    return conv2d_input(x.shape, weight, spread)


def in_turn(first: ConvPoolRelu, second: ConvPoolRelu, x: Tensor) -> Tensor:
    """second(first(x)) in one function where that is possible: a tenth faster, with the same bits.

    It keeps what lies between the layers in the cache, so neither that nor its gradient is ever a tensor. Hooks on a
    layer, or a gradient of the input, need the layers one by one.
    """
    if x.requires_grad or not first.takes(x, tuple(x.shape)) or _watched(first) or _watched(second):
        return second(first(x))
    if first.in_channels > 3 or second.in_channels < 16 or not second.takes(x, pooled(x, first.out_channels)):
        return second(first(x))
    return _Pair.apply(laid(x), *first.factors(), *second.factors(), library())


def _watched(layer: ConvPoolRelu) -> bool:
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or torch_module._has_any_global_hook()


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, bias1: Tensor, w2: Tensor, bias2: Tensor, kernels: ctypes.CDLL
    ) -> Tensor:
        (count, inputs, height, width), middle, outputs = x.shape, len(w1), len(w2)
        sizes = (count, height, width, inputs, middle, outputs)
        between = pooled(x, middle)
        codes1 = empty(*between, dtype=torch.uint8)
        codes2 = empty(*pooled(codes1, outputs), dtype=torch.uint8)
        y, halves = empty(*codes2.shape), scratch_of(kernels.wide_halves_size(count, middle))
        scratch = scratch_of(kernels.pair_forward_scratch(*sizes))
        tensors = (x, w1, bias1, w2, bias2, y, codes1, codes2, halves, scratch)
        kernels.pair_forward(*(tensor.data_ptr() for tensor in tensors), *sizes)
        ctx.save_for_backward(x, w1, w2, codes1, codes2, halves)
        ctx.sizes, ctx.kernels = sizes, kernels
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        x, w1, w2, codes1, codes2, halves = ctx.saved_tensors
        bias1, bias2, above = scratch_of(len(w1)), scratch_of(len(w2)), laid(above)
        kernel1, kernel2 = empty(*w1.shape), empty(*w2.shape)
        scratch = scratch_of(ctx.kernels.pair_backward_scratch(*ctx.sizes))
        tensors = (x, above, codes1, codes2, halves, w2, bias1, kernel1, bias2, kernel2, scratch)
        ctx.kernels.pair_backward(*(tensor.data_ptr() for tensor in tensors), *ctx.sizes)
        return None, kernel1, bias1, kernel2, bias2, None


def fingerprint(kernels: ctypes.CDLL) -> str:
    """A digest of everything the kernels compute from certain numbers: equal for equal bits."""
    digest = hashlib.sha256()
    for function, shape in ((_Narrow, (3, 3, 25, 24)), (_Wide, (7, 32, 14, 14)), (_Wide, (2, 16, 13, 12))):
        x, weight, bias = (_numbers(*sizes).requires_grad_() for sizes in (shape, (48, shape[1], 5, 5), (48,)))
        with torch.enable_grad():
            y = function.apply(laid(x), laid(weight), bias, kernels)
        gradients = torch.autograd.grad(
            y, (x, weight, bias) if function is _Wide else (weight, bias), _numbers(*y.shape)
        )
        for tensor in (y, *gradients):
            digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def _numbers(*shape: int) -> Tensor:
    """Numbers between -0.5 and 0.5 without a visible pattern, the same on every machine."""
    size = torch.Size(shape).numel()
    return torch.arange(size).mul(7919).remainder(1009).sub(504).to(torch.float32).div(1009).view(shape)
