"""Pictures as arrays. Only formats that hold pixels are read: Pillow knows others, such as EPS, which are programs."""

import struct
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.dataset import Progress
from fedseq.data.untrusted import optional

Encoded = tuple[Path | BinaryIO, str]  # a picture, and what to call it when something is wrong with it
_PROGRESS_EVERY = 500
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")
_BILINEAR = 2  # Pillow's number; it averages where a picture becomes smaller
_MOST_PIXELS = 2**24  # 4096 x 4096; a file of a few bytes can claim any number


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


def decode_resized(file: Path, size: tuple[int, int], mode: str) -> tuple[np.ndarray, tuple[int, int]]:
    """uint8 [channels, height, width] of a picture of any size, and the size it had."""
    with open_image(file, str(file)) as image:
        found = image.size
        fitting = image if image.mode == mode else image.convert(mode)
        values = np.asarray(fitting if found == size else fitting.resize(size, resample=_BILINEAR))
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1), found


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)  # our own limit is lower
            image = image_module.open(source, formats=_FORMATS)
        with image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"{_times(image.size)} pixels, and no more than {_MOST_PIXELS} are read")
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"more than 8 bits in a channel: mode {image.mode}")
            yield image
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, image_module.DecompressionBombError) as error:
        raise FedSeqError(
            f"{where}: not a readable picture ({error}). Formats that are read: {', '.join(_FORMATS)}."
        ) from error


def _pixels(source: Path | BinaryIO, where: str, size: tuple[int, int], mode: str) -> np.ndarray:
    with open_image(source, where) as image:
        if image.size != size:  # known from the header, before memory is spent on the pixels
            raise FedSeqError(f"{where}: {_times(image.size)} pixels, expected {_times(size)}.")
        values = np.asarray(image if image.mode == mode else image.convert(mode))
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
