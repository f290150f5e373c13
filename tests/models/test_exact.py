"""Kernels that are a matter of speed alone: PyTorch's bits, and PyTorch itself where there is no kernel."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.models.kernels import crop_flip, descend, exact
from fedseq.training import examples

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(0, 200),
    seed=st.integers(0, 2**32),
    lr=st.sampled_from([0.0, 1e-3, 0.02, 1.0]),
    decay=st.sampled_from([0.0, 4e-4, 0.1]),
)
def test_a_step_gives_pytorchs_bits(count, seed, lr, decay):
    random = torch.Generator().manual_seed(seed)
    weights, gradient = (torch.randn(count, generator=random) for _ in range(2))
    for special in (float("inf"), float("nan"), -0.0, 1e-42):
        weights[torch.rand(count, generator=random) < 0.05] = special
        gradient[torch.rand(count, generator=random) < 0.05] = special
    expected, decayed = weights.clone(), gradient.clone()
    if decay:
        decayed.add_(expected, alpha=decay)
    expected.sub_(decayed, alpha=lr)
    descend(weights, gradient, lr, decay)
    assert torch.equal(weights.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("layouts", [(True, True), (True, False), (False, True)])
def test_a_step_of_a_convolutions_kernel_pairs_what_belongs_together(layouts):
    """1 - 0.5 * (g + 0) where g counts its places, whichever way the two lie in memory."""
    counts = torch.arange(24.0).view(2, 3, 2, 2)
    weights, gradient = (
        x.clone(memory_format=torch.channels_last if last else torch.contiguous_format)
        for x, last in zip((torch.ones(2, 3, 2, 2), counts), layouts, strict=True)
    )
    descend(weights, gradient, 0.5, 0.0)
    assert torch.equal(weights, 1 - 0.5 * counts)


@needs_compiler
def test_the_kernel_is_used_here():
    assert exact.load_descent() is not None


def test_a_step_without_a_kernel(monkeypatch):
    """1 - 0.5 * (2 + 0.5 * 1) = -0.25; on a GPU, in other formats or without a compiler."""
    monkeypatch.setattr(exact, "load_descent", lambda: None)
    for dtype in (torch.float32, torch.float64):
        weights = torch.ones(3, dtype=dtype)
        descend(weights, torch.full((3,), 2.0, dtype=dtype), 0.5, 0.5)
        assert weights.tolist() == [-0.25] * 3


PICTURE = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8)


def moved(down: int, right: int, flip: bool) -> list[list[int]]:
    x = PICTURE.view(1, 1, 2, 3).contiguous(memory_format=torch.channels_last)
    out = crop_flip(x, np.array([down]), np.array([right]), np.array([flip]))
    assert out is not None
    return out[0, 0].tolist()


@needs_compiler
def test_pixels_are_moved_then_mirrored():
    assert moved(0, 0, False) == [[1, 2, 3], [4, 5, 6]]
    assert moved(1, 0, False) == [[4, 5, 6], [0, 0, 0]]
    assert moved(-1, -1, False) == [[0, 0, 0], [0, 1, 2]]
    assert moved(0, 2, False) == [[3, 0, 0], [6, 0, 0]]
    assert moved(0, 1, True) == [[0, 3, 2], [0, 6, 5]]
    assert moved(5, 5, True) == [[0, 0, 0], [0, 0, 0]]


@needs_compiler
@settings(deadline=None, max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 9), st.sampled_from([1, 3, 4]), st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 2**32),
)
def test_augmentation_is_the_same_with_and_without_the_kernel(shape, seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    x = x.contiguous(memory_format=torch.channels_last)
    by_kernel = examples.crop_flip(x, np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "library", lambda: None)
        by_torch = examples.crop_flip(x, np.random.default_rng(seed))
    assert torch.equal(by_kernel, by_torch)


def test_other_pictures_are_left_to_pytorch():
    for x in (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2, 3, 4, 4), torch.zeros(2, 5)):
        assert crop_flip(x, np.zeros(2), np.zeros(2), np.zeros(2)) is None
