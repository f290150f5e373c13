"""Fashion-MNIST (Xiao et al., 2017) from its four IDX files, gzipped or not.

Distributions recompress the files, so the digests are those of the decompressed contents.
"""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.dataset import Arrays, Progress
from fedseq.data.guard import refuse_web_page
from fedseq.data.source import Source
from fedseq.options.datasets import CATALOG

SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_UNSIGNED_BYTE = 0x08  # the type code in the magic number 0x0000TTDD, where DD is the number of dimensions


def find(name: str, folder: Path) -> Iterator[Source]:
    files = tuple(_present_form(folder, stem) for stem in SHA256)
    if any(file.is_file() for file in files):
        yield Source(files, partial(_read, name, files))


def _present_form(folder: Path, stem: str) -> Path:
    plain = folder / stem
    return plain if plain.is_file() else plain.with_name(f"{stem}.gz")


def _read(name: str, files: tuple[Path, ...], progress: Progress) -> Arrays:
    facts = CATALOG[name]
    _, height, width = facts.shape
    shapes = ((facts.train, height, width), (facts.train,), (facts.test, height, width), (facts.test,))
    arrays = []
    for done, (file, shape) in enumerate(zip(files, shapes, strict=True), start=1):
        arrays.append(_read_idx(file, shape))
        progress(done, len(files), "reading files")
    x_train, y_train, x_test, y_test = arrays
    return Arrays(x_train[:, None], y_train.astype(np.int64), x_test[:, None], y_test.astype(np.int64))


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    refuse_web_page(path)
    header = struct.pack(f">{1 + len(shape)}I", _UNSIGNED_BYTE << 8 | len(shape), *shape)
    size = len(header) + math.prod(shape)
    contents = _contents(path, size + 1)  # one more than expected shows that there is too much, however much it is
    if not contents.startswith(header):
        raise FedSeqError(f"{path}: not an IDX file of unsigned bytes with shape {list(shape)}.")
    if len(contents) != size:
        raise FedSeqError(f"{path}: {'more' if len(contents) > size else 'fewer'} than {size} bytes of contents.")
    if hashlib.sha256(contents).hexdigest() != SHA256[path.name.removesuffix(".gz")]:
        raise FedSeqError(f"{path}: the contents are not the published ones (SHA-256 differs). Get the file again.")
    return np.frombuffer(contents, np.uint8, offset=len(header)).reshape(shape).copy()  # a copy can be written to


def _contents(path: Path, limit: int) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(limit)
    except (OSError, EOFError, zlib.error) as error:
        raise FedSeqError(f"{path} is damaged or incomplete: {error}. Get the file again.") from error
