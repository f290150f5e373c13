"""Pooling is a matter of speed alone: PyTorch's bits whatever the numbers, PyTorch itself where they do not fit."""

import pickle
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import max_pool2d

from fedseq.models.kernels import exact, pool_relu
from fedseq.models.networks import LeNet5
from fedseq.training.weights import flatten

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 1e-42, float("nan"), float("inf"), float("-inf")])
CHANNELS_LAST = torch.channels_last

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def by_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(max_pool2d(x, 2))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int32)


def numbers(shape: tuple[int, ...], seed: int, share_special: float) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    special = SPECIAL[torch.randint(len(SPECIAL), shape, generator=random)]
    chosen = torch.rand(shape, generator=random) < share_special
    return torch.where(chosen, special, torch.randn(shape, generator=random)).contiguous(memory_format=CHANNELS_LAST)


def assert_same_bits(x: torch.Tensor, above: torch.Tensor) -> None:
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    pooled, expected = pool_relu(ours), by_torch(theirs)
    assert "PoolRelu" in type(pooled.grad_fn).__name__
    assert torch.equal(bits(pooled), bits(expected))
    assert pooled.is_contiguous(memory_format=CHANNELS_LAST)
    pooled.backward(above)
    expected.backward(above)
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(bits(ours.grad), bits(theirs.grad))
    with torch.no_grad():
        assert torch.equal(bits(pool_relu(x)), bits(expected))


@needs_compiler
@settings(deadline=None, max_examples=150)
@given(
    shape=st.tuples(st.integers(0, 5), st.integers(1, 70), st.integers(2, 11), st.integers(2, 11)),
    seed=st.integers(0, 2**32),
    share_special=st.sampled_from([0.0, 0.3, 1.0]),
    transposed=st.booleans(),
)
def test_the_bits_are_pytorchs(shape, seed, share_special, transposed):
    x = numbers(shape, seed, share_special)
    above = numbers(tuple(by_torch(x).shape), seed + 1, share_special)
    assert_same_bits(x, above.contiguous() if transposed else above)


@needs_compiler
def test_the_shapes_of_lenet5():
    for shape in ((64, 64, 28, 28), (36, 64, 10, 10), (1, 64, 24, 24)):
        x = numbers(shape, 0, 0.01)
        assert_same_bits(x, numbers(tuple(by_torch(x).shape), 1, 0.01))


@needs_compiler
@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 3, 4, 4),
        torch.randn(3, 4, 4),
        numbers((2, 3, 4, 4), 0, 0.0).double(),
        numbers((2, 3, 4, 4), 0, 0.0).bfloat16(),
        numbers((2, 8, 8, 3), 0, 0.0)[:, ::2],
        numbers((2, 3, 8, 8), 0, 0.0)[:, :, ::2],
    ],
    ids=["contiguous", "one picture", "float64", "bfloat16", "every second channel", "every second row"],
)
def test_what_does_not_fit_is_pytorchs(x, monkeypatch):
    monkeypatch.setattr(exact, "load", lambda: pytest.fail("not for the kernel"))
    assert torch.equal(pool_relu(x), by_torch(x))


@needs_compiler
def test_function_transforms_and_tracers_see_pytorch():
    x, direction = numbers((2, 3, 4, 4), 0, 0.0), numbers((2, 3, 4, 4), 1, 0.0)
    assert torch.equal(
        torch.func.grad(lambda z: pool_relu(z).sum())(x), torch.func.grad(lambda z: by_torch(z).sum())(x)
    )
    assert torch.equal(torch.func.vmap(pool_relu)(x.unsqueeze(1)), by_torch(x).unsqueeze(1))
    expected = torch.func.jvp(by_torch, (x,), (direction,))[1]
    with torch.autograd.forward_ad.dual_level():
        dual = pool_relu(torch.autograd.forward_ad.make_dual(x, direction))
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(dual).tangent, expected)
    assert torch.equal(torch.jit.trace(pool_relu, (x,))(x), by_torch(x))


@needs_compiler
def test_another_default_precision_changes_nothing():
    x = numbers((2, 3, 5, 4), 0, 0.3)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert_same_bits(x, numbers((2, 3, 2, 2), 1, 0.3).float())
    finally:
        torch.set_default_dtype(before)


@needs_compiler
def test_a_second_derivative_is_refused_and_not_wrong():
    x = numbers((1, 2, 4, 4), 0, 0.0).requires_grad_()
    (gradient,) = torch.autograd.grad((pool_relu(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@needs_compiler
def test_a_model_computes_the_same_with_and_without(monkeypatch):
    x = torch.randn(8, 3, 32, 32).contiguous(memory_format=CHANNELS_LAST)
    torch.manual_seed(0)
    model = flatten(LeNet5((3, 32, 32), 10))
    gradients = []
    for load in (exact.load, lambda: None):
        monkeypatch.setattr(exact, "load", load)
        model.gradient.zero_()
        model.module(x).logsumexp(1).sum().backward()
        gradients.append(model.gradient.clone())
    assert torch.equal(bits(gradients[0]), bits(gradients[1]))
    assert pickle.loads(pickle.dumps(model.module))(x).shape == (8, 10)
