"""The fast convolutions against float64, beside PyTorch's; what they may touch, and what they must not depend on."""

import copy
import gc
import pickle
import resource

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from fedseq.basics.errors import FedSeqError
from fedseq.models import kernels
from fedseq.models.kernels import ConvPoolRelu, available, choose, convolution, supports
from fedseq.models.networks import LeNet5
from fedseq.training.weights import flatten

needs_kernels = pytest.mark.skipif(available() is not None, reason=f"no fast kernels: {available()}")
LAYERS = [(3, 64, 32, 32), (64, 64, 14, 14), (1, 32, 28, 28), (32, 16, 12, 12), (1, 16, 17, 40), (16, 48, 11, 14)]
AS_LAYER = [(3, 64, 32, 32), (64, 64, 14, 14)]  # LeNet-5's own


def layer_and_pictures(inputs: int, outputs: int, height: int, width: int, count: int) -> tuple[ConvPoolRelu, Tensor]:
    torch.manual_seed(inputs + height)
    return ConvPoolRelu(inputs, outputs, 5), torch.randn(count, inputs, height, width)


def results(layer: nn.Conv2d, x: Tensor, above: Tensor | None = None) -> dict[str, Tensor]:
    """The output and all gradients; those of a plain nn.Conv2d by PyTorch's own operations."""
    x = x.detach().clone().requires_grad_()
    y = layer(x) if isinstance(layer, ConvPoolRelu) else torch.relu(max_pool2d(layer(x), 2))
    above = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y).sin() if above is None else above.to(y.dtype)
    gradients = torch.autograd.grad(y, [x, *layer.parameters()], above)
    return dict(zip(("y", "x", "weight", "bias"), (y.detach(), *gradients), strict=True))


def exact(layer: ConvPoolRelu, x: Tensor, above: Tensor | None = None) -> dict[str, Tensor]:
    double = nn.Conv2d(layer.in_channels, layer.out_channels, 5).double()
    double.load_state_dict(layer.state_dict())
    return results(double, x.double(), above)


def clear_gradient(layer: ConvPoolRelu, x: Tensor) -> Tensor:
    """A gradient from above which is zero wherever rounding decides who wins a window, or whether ReLU blocks it."""
    double = nn.Conv2d(layer.in_channels, layer.out_channels, 5).double()
    double.load_state_dict(layer.state_dict())
    outputs = double(x.double()).detach()
    tall, wide = outputs.shape[2] // 2, outputs.shape[3] // 2
    windows = outputs[:, :, : 2 * tall, : 2 * wide].unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    first, second = windows.topk(2).values.unbind(-1)
    return torch.where((first - second > 1e-4) & (first.abs() > 1e-4), torch.randn(first.shape), 0.0)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


@needs_kernels
@pytest.mark.parametrize("sizes", LAYERS)
def test_outputs_and_gradients_are_as_exact_as_pytorchs(sizes):
    layer, x = layer_and_pictures(*sizes, count=8)
    assert supports(layer, tuple(x.shape))
    above = clear_gradient(layer, x)
    true, theirs = exact(layer, x, above), results(layer, x, above)
    choose(layer, "fast")
    ours = results(layer, x, above)
    if layer.in_channels < 16:  # PyTorch computes it either way
        assert torch.allclose(ours["x"], true.pop("x").float(), atol=1e-5)
    for name, expected in true.items():
        error, error_of_torch = (ours[name] - expected).abs(), (theirs[name] - expected).abs()
        # A transform spreads rounding errors evenly. The direct way has none where it adds zeros, and a pooled gradient
        # is mostly zeros, so the data gradient's mean (not its largest) error may be larger.
        allowed = 3.0 if name == "x" else 1.5
        assert error.max() <= 1.5 * error_of_torch.max() + 1e-7, name
        assert error.mean() <= allowed * error_of_torch.mean() + 1e-8, name


@needs_kernels
def test_gradients_of_a_whole_model():
    torch.manual_seed(0)
    model, x = LeNet5((3, 32, 32), 10), torch.randn(64, 3, 32, 32)
    gradients = []
    for kernel, dtype in (("torch", torch.float64), ("torch", torch.float32), ("fast", torch.float32)):
        twin = copy.deepcopy(model).to(dtype)
        choose(twin, kernel)
        twin(x.to(dtype)).logsumexp(1).sum().backward()
        gradients.append([parameter.grad for parameter in twin.parameters()])
    for (name, _), true, theirs, ours in zip(model.named_parameters(), *gradients, strict=True):
        # Windows whose winner rounding decides are few, but each of them counts for more than all other errors.
        assert (ours - true).abs().median() <= 1.5 * (theirs - true).abs().median(), name
        assert (ours - true).norm() <= 1e-4 * true.norm(), name


@needs_kernels
@pytest.mark.parametrize("sizes", [(3, 16, 20, 19), (16, 16, 14, 14), (16, 32, 13, 12)])
def test_every_batch_size(sizes):
    """A picture's numbers do not depend on its batch; gradients of parameters are the sums over pictures."""
    layer, x = layer_and_pictures(*sizes, count=65)
    choose(layer, "fast")
    with torch.no_grad():
        y = layer(x)
    above = torch.randn(y.shape)
    alone = [results(layer, x[i : i + 1], above[i : i + 1]) for i in range(65)]
    for count in range(1, 66):
        together = results(layer, x[:count], above[:count])
        assert same_bits(together["y"], y[:count])
        if sizes[0] == 16:  # a first layer's data gradient is PyTorch's
            assert same_bits(together["x"], torch.cat([each["x"] for each in alone[:count]]))
        for name in ("weight", "bias"):
            expected = torch.stack([each[name] for each in alone[:count]]).double().sum(0)
            assert torch.allclose(together[name].double(), expected, rtol=1e-5, atol=1e-4), (count, name)


class Guarded:
    """A buffer full of NaN (or 255) between two canaries."""

    SIDE = 256

    def __init__(self, content: Tensor | None, size: int = 0, dtype: torch.dtype = torch.float32):
        size = size if content is None else content.numel()
        blank = 255 if dtype is torch.uint8 else float("nan")
        self.all = torch.full((size + 2 * self.SIDE,), blank, dtype=dtype)
        self.inside = self.all[self.SIDE : self.SIDE + size]
        for side in (self.all[: self.SIDE], self.all[self.SIDE + size :]):
            side.copy_(torch.arange(self.SIDE) % 100)
        if content is not None:
            self.inside.copy_(content.flatten())

    @property
    def size(self) -> int:
        return self.inside.numel()

    def check(self) -> None:
        for side in (self.all[: self.SIDE], self.all[self.SIDE + self.size :]):
            assert torch.equal(side, (torch.arange(self.SIDE) % 100).to(side.dtype))


def last(x: Tensor) -> Tensor:
    """Its numbers in the order in which C reads them."""
    return x.permute(0, 2, 3, 1).contiguous()


@needs_kernels
@pytest.mark.parametrize("sizes", [(3, 32, 32, 32), (1, 16, 10, 13), (16, 32, 14, 14), (32, 16, 10, 11)])
def test_nothing_beside_the_buffers_is_touched_and_nothing_uninitialised_is_used(sizes):
    inputs, outputs, height, width = sizes
    library, narrow = convolution._checked(), inputs < 16
    for count in (1, 2, 3, 4, 5, 6, 7, 13, 64, 65):
        layer, x = layer_and_pictures(*sizes, count=count)
        above = clear_gradient(layer, x).float()
        pictures, weight, bias = Guarded(last(x)), Guarded(last(layer.weight.detach())), Guarded(layer.bias.detach())
        y, codes = Guarded(None, above.numel()), Guarded(None, above.numel(), torch.uint8)
        g, b, w, d = (
            Guarded(last(above)),
            Guarded(None, outputs),
            Guarded(None, layer.weight.numel()),
            Guarded(None, x.numel()),
        )
        sides = count, height, width, inputs, outputs
        if narrow:
            forth = Guarded(None, library.narrow_forward_scratch(inputs, outputs))
            back = Guarded(None, library.narrow_backward_scratch(height, width, inputs, outputs))
            forward = (pictures, weight, bias, y, codes, forth)
            backward = (pictures, g, codes, b, w, back)
            library.narrow_forward(*(each.inside.data_ptr() for each in forward), *sides)
            library.narrow_backward(*(each.inside.data_ptr() for each in backward), *sides)
        else:
            halves = Guarded(None, library.wide_halves_size(count, inputs))
            forth = Guarded(None, library.wide_forward_scratch(count, inputs, outputs))
            back = Guarded(None, library.wide_backward_scratch(count, inputs, outputs))
            forward = (pictures, weight, bias, y, codes, halves, forth)
            backward = (g, codes, halves, weight, b, w, d, back)
            library.wide_forward(*(each.inside.data_ptr() for each in forward), *sides)
            library.wide_backward(*(each.inside.data_ptr() for each in backward), *sides)
        for buffer in (*forward, *backward):
            buffer.check()
        expected = exact(layer, x, above)
        assert torch.allclose(y.inside.double(), last(expected["y"]).flatten(), atol=1e-5)
        assert torch.allclose(w.inside.double(), last(expected["weight"]).flatten(), rtol=1e-4, atol=1e-4)
        assert torch.allclose(b.inside.double(), expected["bias"], rtol=1e-4, atol=1e-4)
        assert narrow or torch.allclose(d.inside.double(), last(expected["x"]).flatten(), atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 36, 65])
def test_two_layers_at_once_touch_nothing_else_either(count):
    library, sizes = convolution.library(), (count, 28, 27, 1, 16, 32)
    x, w1, w2 = torch.randn(count, 1, 28, 27), torch.randn(16, 1, 5, 5) / 5, torch.randn(32, 16, 5, 5) / 20
    bias1, bias2, above = torch.randn(16), torch.randn(32), torch.randn(count, 32, 4, 3)
    x_, w1_, w2_, g = (Guarded(last(tensor)) for tensor in (x, w1, w2, above))
    b1, b2, halves = Guarded(bias1), Guarded(bias2), Guarded(None, library.wide_halves_size(count, 16))
    y, *gradients = (Guarded(None, size) for size in (above.numel(), 16, w1_.size, 32, w2_.size))
    codes1, codes2 = (Guarded(None, size, torch.uint8) for size in (count * 16 * 12 * 11, above.numel()))
    forth, back = (
        Guarded(None, size(*sizes)) for size in (library.pair_forward_scratch, library.pair_backward_scratch)
    )
    forward = (x_, w1_, b1, w2_, b2, y, codes1, codes2, halves, forth)
    backward = (x_, g, codes1, codes2, halves, w2_, *gradients, back)
    library.pair_forward(*(each.inside.data_ptr() for each in forward), *sizes)
    library.pair_backward(*(each.inside.data_ptr() for each in backward), *sizes)
    for buffer in (*forward, *backward):
        buffer.check()
    layers = ConvPoolRelu(1, 16, 5), ConvPoolRelu(16, 32, 5)
    parameters = [parameter for layer in layers for parameter in (layer.bias, layer.weight)]
    with torch.no_grad():
        for parameter, value in zip(parameters, (bias1, w1, bias2, w2), strict=True):
            parameter.copy_(value)
    for layer in layers:
        choose(layer, "fast")
    expected = layers[1](layers[0](x))
    assert torch.equal(last(expected.detach()).flatten(), y.inside)
    for found, true in zip(gradients, torch.autograd.grad(expected, parameters, above), strict=True):
        assert torch.equal(found.inside, (last(true) if true.dim() == 4 else true).flatten())


@needs_kernels
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_a_model_gives_the_same_bits_when_its_layers_are_watched(shape):
    torch.manual_seed(0)
    model, x, seen, gradients = LeNet5(shape, 10), torch.randn(7, *shape), [], []
    choose(model, "fast")
    for _ in range(2):
        model.zero_grad()
        model(x).logsumexp(1).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        model.conv1.register_forward_hook(lambda *_: seen.append(1))
    assert len(seen) == 1
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@needs_kernels
@pytest.mark.parametrize("sizes", AS_LAYER)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_in_its_picture(sizes, bad):
    layer, x = layer_and_pictures(*sizes, count=9)
    choose(layer, "fast")
    above = torch.randn(layer(x).shape)
    clean = results(layer, x, above)
    x[4, 1, 6, 5] = bad
    spoilt = results(layer, x, above)
    others = [i for i in range(9) if i != 4]
    assert same_bits(spoilt["y"][others], clean["y"][others])
    assert same_bits(spoilt["x"][others], clean["x"][others])
    assert not spoilt["y"][4].isfinite().all()
    assert not spoilt["weight"].isfinite().all()  # the gate on a client's update sees it


@pytest.mark.slow
@needs_kernels
def test_memory_does_not_grow():
    small = [layer_and_pictures(*sizes, count=1) for sizes in ((3, 16, 12, 12), (16, 16, 12, 12))]

    def call(times: int) -> None:
        for layer, x in small:
            choose(layer, "fast")
            for _ in range(times):
                layer(x).sum().backward()

    call(500)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call(10_000)
    # A leak of one spectrum (98 x 2 x 16 floats) a call would be 120 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


@needs_kernels
def test_the_layout_in_memory_does_not_matter():
    for sizes in AS_LAYER:
        layer, x = layer_and_pictures(*sizes, count=3)
        choose(layer, "fast")
        last_layer = copy.deepcopy(layer).to(memory_format=torch.channels_last)
        for name, tensor in results(layer, x).items():
            assert same_bits(tensor, results(last_layer, x.contiguous(memory_format=torch.channels_last))[name]), name


@needs_kernels
def test_what_is_frozen_gets_no_gradient_and_there_may_be_no_bias():
    for sizes in AS_LAYER:
        layer, x = layer_and_pictures(*sizes, count=2)
        choose(layer, "fast")
        layer.weight.requires_grad_(False)
        layer(x).sum().backward()
        assert layer.weight.grad is None
        assert layer.bias.grad is not None
        plain = ConvPoolRelu(*sizes[:2], 5, bias=False)
        choose(plain, "fast")
        fast = plain(x)
        choose(plain, "torch")
        assert torch.allclose(fast, plain(x), atol=1e-5)


def test_off_is_what_it_always_was():
    """The same initial weights, names and bits as nn.Conv2d, pool and ReLU."""
    torch.manual_seed(3)
    ours = ConvPoolRelu(3, 16, 5)
    torch.manual_seed(3)
    theirs = nn.Conv2d(3, 16, 5)
    x = torch.randn(2, 3, 16, 16)
    assert same_bits(ours(x), torch.relu(max_pool2d(theirs(x), 2)))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert list(LeNet5((3, 32, 32), 10).state_dict())[:4] == [
        "conv1.weight",
        "conv1.bias",
        "conv2.weight",
        "conv2.bias",
    ]


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (ConvPoolRelu(3, 64, 5), (64, 3, 32, 32), True),
        (ConvPoolRelu(1, 64, 5), (1, 1, 28, 28), True),
        (ConvPoolRelu(64, 64, 5, padding="valid"), (2, 64, 12, 12), True),
        (ConvPoolRelu(64, 64, 5), (2, 64, 15, 15), False),  # larger than the transform
        (ConvPoolRelu(64, 64, 5), (2, 64, 8, 8), False),  # the direct way is faster
        (ConvPoolRelu(64, 64, 5), (64, 14, 14), False),
        (ConvPoolRelu(64, 64, 5), (0, 64, 14, 14), False),
        (ConvPoolRelu(4, 64, 5), (2, 4, 32, 32), False),
        (ConvPoolRelu(3, 20, 5), (2, 3, 32, 32), False),
        (ConvPoolRelu(3, 64, 3), (2, 3, 32, 32), False),
        (ConvPoolRelu(3, 64, 5, padding=2), (2, 3, 32, 32), False),
        (ConvPoolRelu(3, 64, 5, stride=2), (2, 3, 32, 32), False),
        (ConvPoolRelu(16, 64, 5, groups=2), (2, 16, 14, 14), False),
    ],
)
def test_sizes_decide(layer, shape, expected):
    assert supports(layer, shape) is expected


@needs_kernels
def test_what_does_not_fit_is_pytorchs(monkeypatch):
    layer, x = layer_and_pictures(3, 16, 12, 12, count=2)
    expected = layer(x)
    choose(layer, "fast")
    monkeypatch.setattr(convolution, "_checked", lambda: pytest.fail("not for the kernels"))
    assert same_bits(torch.jit.trace(layer, (x,), check_trace=False)(x), expected)
    assert torch.equal(torch.func.vmap(layer)(x.unsqueeze(1)).squeeze(1), expected)
    parameters = dict(layer.named_parameters())
    gradient = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,)).sum())(parameters)
    assert gradient["weight"].shape == layer.weight.shape
    with torch.autograd.forward_ad.dual_level():
        layer(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
    with torch.autocast("cpu"):
        assert layer(x).dtype is torch.bfloat16
    assert layer.double()(x.double()).dtype is torch.float64
    assert ConvPoolRelu(3, 16, 3)(x).shape == (2, 16, 5, 5)


@needs_kernels
def test_copies_and_pickles_keep_the_choice():
    model = flatten(LeNet5((3, 32, 32), 10)).module
    choose(model, "fast")
    x = torch.randn(2, 3, 32, 32)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.conv1.fast
        assert other.conv2.fast
        assert same_bits(other(x), model(x))


def test_fast_is_an_error_where_there_are_no_kernels(monkeypatch):
    layer, x = layer_and_pictures(3, 16, 12, 12, count=2)
    choose(layer, "fast")
    convolution._checked.cache_clear()
    monkeypatch.setenv("FEDSEQ_KERNELS", "0")
    try:
        assert kernels.available() == "FEDSEQ_KERNELS=0 is set"
        with pytest.raises(FedSeqError, match="FEDSEQ_KERNELS=0 is set"):
            layer(x)
        choose(layer, "torch")
        assert layer(x).shape == (2, 16, 4, 4)
    finally:
        convolution._checked.cache_clear()
    with pytest.raises(FedSeqError, match="Did you mean 'fast'"):
        choose(layer, "fasst")
