"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in the three forms in which people have them.

The official archive, its extracted batches, or the parquet files of Hugging Face. The archive is not extracted: its
batches are read in memory, and only after its MD5 digest was found right.
"""

import math
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain
from fedseq.data.dataset import Arrays, Progress
from fedseq.data.guard import md5, refuse_web_page
from fedseq.data.parquet import read_parquet
from fedseq.data.source import Source
from fedseq.data.unpickle import BATCH_LIMIT, load_batch
from fedseq.options.datasets import CATALOG, Download


@dataclass(frozen=True)
class _Layout:
    folder: str
    train: tuple[str, ...]
    test: str
    batch_labels: str
    parquet_labels: tuple[str, ...]

    @property
    def batches(self) -> tuple[str, ...]:
        return (*self.train, self.test)


_CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_LAYOUTS = {
    "cifar10": _Layout("cifar-10-batches-py", _CIFAR10_TRAIN, "test_batch", "labels", ("label",)),
    "cifar100": _Layout("cifar-100-python", ("train",), "test", "fine_labels", ("fine_label", "label")),
}


def find(name: str, folder: Path) -> Iterator[Source]:
    layout = _LAYOUTS[name]
    archive = folder / CATALOG[name].downloads[0].filename
    if archive.is_file():
        yield Source((archive,), partial(_read_archive, name, archive))
    for place in (folder / layout.folder, folder):
        batches = tuple(place / batch for batch in layout.batches)
        if any(batch.is_file() for batch in batches):
            yield Source(batches, partial(_read_batches, name, batches))
    for place in (folder, *_subfolders(name, folder)):
        yield from _find_parquet(name, place)


def _subfolders(name: str, folder: Path) -> list[Path]:
    """Hugging Face puts the files in a folder named after the configuration. One of another data set is no such."""
    others = CATALOG.keys() - {name}
    return sorted(place for place in folder.glob("*/") if place.name not in others)


def _find_parquet(name: str, place: Path) -> Iterator[Source]:
    train, test = (tuple(sorted(place.glob(f"{split}*.parquet"))) for split in ("train", "test"))
    if train or test:
        train, test = train or (place / "train.parquet",), test or (place / "test.parquet",)
        yield Source(train + test, partial(read_parquet, train, test, _LAYOUTS[name].parquet_labels, CATALOG[name]))


def _read_archive(name: str, archive: Path, progress: Progress) -> Arrays:
    refuse_web_page(archive)
    _check_digest(archive, CATALOG[name].downloads[0])
    layout = _LAYOUTS[name]
    wanted = {f"{layout.folder}/{batch}" for batch in layout.batches}
    parts = {}
    for member, raw in _members(archive, wanted):
        parts[Path(member).name] = _decode_batch(name, raw, f"{archive}, {member}")
        progress(len(parts), len(wanted), "reading the archive")
    missing = [batch for batch in layout.batches if batch not in parts]
    if missing:
        raise FedSeqError(f"{archive}: {layout.folder}/{missing[0]} is missing.")
    return _join([parts[batch] for batch in layout.batches])


def _check_digest(archive: Path, download: Download) -> None:
    digest = md5(archive)
    if digest != download.md5:
        raise FedSeqError(
            f"{archive} is damaged, incomplete or another file: {archive.stat().st_size} bytes with MD5 {digest}, "
            f"expected {download.size} with {download.md5}. Delete it and get it again."
        )


def _members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """The wanted files in the order of the archive, because going back in it means decompressing it again."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name in wanted and member.isfile() else None
                if file is not None:
                    yield member.name, file.read(BATCH_LIMIT + 1)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise FedSeqError(f"{archive} is damaged or incomplete: {error}.") from error


def _read_batches(name: str, files: tuple[Path, ...], progress: Progress) -> Arrays:
    parts = []
    for file in files:
        refuse_web_page(file)
        with open_plain(file) as stream:
            parts.append(_decode_batch(name, stream.read(BATCH_LIMIT + 1), str(file)))
        progress(len(parts), len(files), "reading batches")
    return _join(parts)


def _decode_batch(name: str, raw: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    batch = load_batch(raw, where)
    pixels, shape = batch.get("data"), CATALOG[name].shape
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != math.prod(shape):
        raise FedSeqError(f"{where}: no array 'data' with {math.prod(shape)} bytes for each picture.")
    key, classes = _LAYOUTS[name].batch_labels, CATALOG[name].classes
    labels = batch.get(key)
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(_is_label(n, classes) for n in labels):
        raise FedSeqError(f"{where}: no list '{key}' with a number from 0 to {classes - 1} for each picture.")
    return pixels.reshape(-1, *shape), np.array(labels, dtype=np.int64)


def _is_label(value: object, classes: int) -> bool:
    return isinstance(value, int) and 0 <= value < classes


def _join(parts: list[tuple[np.ndarray, np.ndarray]]) -> Arrays:
    """The last part is the test set; copied, because what was read from bytes cannot be written to."""
    *train, (x_test, y_test) = parts
    x_train, y_train = (np.concatenate(column) for column in zip(*train, strict=True))
    return Arrays(x_train, y_train, x_test.copy(), y_test)
