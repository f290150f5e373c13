"""Augmentation of whole batches of integer pictures, in the layout they come in."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedseq.models import kernels

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
