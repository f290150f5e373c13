"""Pictures of bytes moved by a few pixels and mirrored, in one pass over memory instead of several."""

import numpy as np
import torch
from torch import Tensor

from fedseq.models.kernels import exact


def crop_flip(x: Tensor, down: np.ndarray, right: np.ndarray, flipped: np.ndarray) -> Tensor | None:
    """Pixel (r, c) of picture i is x[i, :, r + down[i], c + right[i]], and zero where there is none; then `flipped`
    pictures are mirrored. None where there is no kernel for it."""
    kernel = exact.library() if exact.in_memory(x, torch.uint8) and exact.channels_last(x) else None
    if kernel is None:
        return None
    count, channels, height, width = x.shape
    out = torch.empty_like(x)
    down, right = (np.ascontiguousarray(shift, dtype=np.int64) for shift in (down, right))
    flipped = np.ascontiguousarray(flipped, dtype=np.uint8)
    pointers = (down.ctypes.data, right.ctypes.data, flipped.ctypes.data)
    kernel.crop_flip(x.data_ptr(), out.data_ptr(), *pointers, count, height, width, channels)
    return out
