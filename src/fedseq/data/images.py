"""Pictures in any format that Pillow reads, as arrays."""

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedseq.data.dataset import Progress
from fedseq.data.guard import optional
from fedseq.errors import FedSeqError

Encoded = tuple[Path | BinaryIO, str]  # a picture, and what to call it when something is wrong with it
_PROGRESS_EVERY = 500


def decode_all(
    pictures: Iterable[Encoded], count: int, size: tuple[int, int], mode: str, progress: Progress
) -> np.ndarray:
    """uint8 [count, channels, height, width] from pictures of one size, in mode L or RGB."""
    x = np.empty((count, len(mode), size[1], size[0]), np.uint8)  # a mode has a letter for each channel
    for index, (source, where) in zip(range(count), pictures, strict=True):
        x[index] = _pixels(source, where, size, mode)
        if (index + 1) % _PROGRESS_EVERY == 0 or index + 1 == count:
            progress(index + 1, count, "decoding pictures")
    return x


def common_format(pictures: Iterable[Encoded]) -> tuple[tuple[int, int], str]:
    """Size and mode, from the headers alone: the mode is RGB unless all pictures are greyscale."""
    first: tuple[tuple[int, int], str] | None = None
    modes = set()
    for source, where in pictures:
        with open_image(source, where) as image:
            size, mode = image.size, image.mode
        first = first or (size, where)
        modes.add(mode)
        if size != first[0]:
            raise FedSeqError(
                f"{where}: {_times(size)} pixels, but {first[1]} has {_times(first[0])}; "
                "all pictures must have the same size."
            )
    if first is None:
        raise ValueError("no pictures")
    return first[0], "L" if modes == {"L"} else "RGB"


@contextmanager
def open_image(source: Path | BinaryIO, where: str) -> Iterator[Any]:
    """A Pillow image whose header was read; every failure until the end of the block becomes an error with a name."""
    image_module = optional("PIL.Image")
    try:
        with image_module.open(source) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"more than 8 bits in a channel: mode {image.mode}")
            yield image
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, image_module.DecompressionBombError) as error:
        raise FedSeqError(f"{where}: not a readable picture ({error}).") from error


def _pixels(source: Path | BinaryIO, where: str, size: tuple[int, int], mode: str) -> np.ndarray:
    with open_image(source, where) as image:
        if image.size != size:  # known from the header, before memory is spent on the pixels
            raise FedSeqError(f"{where}: {_times(image.size)} pixels, expected {_times(size)}.")
        values = np.asarray(image if image.mode == mode else image.convert(mode))
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
