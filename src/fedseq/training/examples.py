"""Examples, and how a batch of them becomes the input of a model; augmentation of whole batches.

Integer pictures stay integers until a batch is made. For models that convolve they lie channels-last in memory, which
is what the CPU's convolutions want: taking a picture is then one copy, and nothing is laid out anew per batch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedseq.models import kernels


@dataclass(frozen=True)
class Examples:
    """Inputs and targets in one place. Integer pictures are scaled by `mean` and `std` when a batch is made."""

    x: Tensor
    y: Tensor
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    owner: Tensor | None = None  # the client whose each example is, by its number; -1 where nobody looks at its client

    def on(self, device: str) -> "Examples":
        """Where a model takes them from; their owners are only counted."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))


def fingerprint(train: Examples, clients: Sequence[np.ndarray], test: Examples) -> str:
    """Of all examples and who holds them: runs and pre-training are recognised by it."""
    digest = hashlib.sha256()
    for tensor in (train.x, train.y, test.x, test.y):
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    for indices in clients:
        for first in range(0, len(indices), 1 << 16):  # in pieces: a federation's client may claim to hold millions
            digest.update(np.ascontiguousarray(indices[first : first + (1 << 16)], dtype=np.int64).data)
    return digest.hexdigest()[:16]


def lay_channels_last(examples: Examples) -> Examples:
    """The same pictures with a pixel's channels side by side; other inputs are left alone."""
    if examples.x.dim() != 4:
        return examples
    return replace(examples, x=examples.x.contiguous(memory_format=torch.channels_last))


def take(x: Tensor, index: Tensor) -> Tensor:
    """x[index] in the layout of x, picture by picture instead of number by number."""
    if memory_format(x) is torch.channels_last:
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


def memory_format(x: Tensor) -> torch.memory_format:
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def model_input(x: Tensor, examples: Examples, channels_last: bool) -> Tensor:
    """Integer pictures scaled to what the model takes; floats as they are."""
    if channels_last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    if x.is_floating_point() or not examples.mean:
        return x
    factor, shift = _scaling(examples.mean, examples.std, x.shape[1:], memory_format(x), x.device)
    return torch.addcmul(shift, x.float(), factor)


@lru_cache(maxsize=8)
def _scaling(
    mean: tuple[float, ...],
    std: tuple[float, ...],
    shape: torch.Size,
    layout: torch.memory_format,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """(x / 255 - mean) / std as a factor and a shift for every number of a picture, so that one pass applies both."""
    channels = [torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1) for values in (mean, std)]
    factor, shift = 1 / (255 * channels[1]), -channels[0] / channels[1]
    full = (each.float().expand(1, *shape).contiguous(memory_format=layout) for each in (factor, shift))
    first, second = (each.to(device) for each in full)
    return first, second


PADDING = 4


def crop_flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Random crop out of four pixels of zero padding, then a horizontal flip of every second picture on average."""
    corners = rng.integers(0, 2 * PADDING + 1, (2, len(x)))
    flips = rng.random(len(x)) < 0.5
    down, right = corners - PADDING
    done = kernels.crop_flip(x, down, right, flips)
    if done is not None:
        return done
    rows, columns = torch.from_numpy(corners).to(x.device)
    flipped = torch.from_numpy(np.flatnonzero(flips)).to(x.device)
    pictures = _crop(x.permute(0, 2, 3, 1), rows, columns)
    pictures.index_copy_(0, flipped, pictures.index_select(0, flipped).flip(2))
    return pictures.permute(0, 3, 1, 2)


def _crop(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Of channels-last pictures: a crop is a run of neighbouring pixels per row, so whole runs are copied."""
    batch, height, width, channels = x.shape
    padded = pad(x, (0, 0, PADDING, PADDING, PADDING, PADDING)).contiguous()
    tall, wide = height + 2 * PADDING, width + 2 * PADDING
    corner = (torch.arange(batch, device=x.device) * tall + rows) * wide + columns
    run_starts = corner.view(-1, 1) + torch.arange(0, height * wide, wide, device=x.device)
    runs = padded.as_strided((batch * tall * wide - width + 1, width * channels), (channels, 1))
    return runs.index_select(0, run_starts.flatten()).view(batch, height, width, channels)


def none(x: Tensor, rng: np.random.Generator) -> Tensor:
    return x
