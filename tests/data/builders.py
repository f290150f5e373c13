"""Small data sets in the forms in which the real ones are published."""

import dataclasses
import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedseq.basics.errors import FedSeqError
from fedseq.data import published
from fedseq.data.dataset import Arrays, Dataset
from fedseq.options.datasets import CATALOG

CIFAR_SIZES = {"cifar10": (50, 20), "cifar100": (200, 100)}
CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
CIFAR_LABELS = {"cifar10": ("labels", "label"), "cifar100": ("fine_labels", "fine_label")}  # in batches, in parquet


def shrink(monkeypatch: pytest.MonkeyPatch, name: str, train: int, test: int) -> None:
    monkeypatch.setitem(CATALOG, name, dataclasses.replace(CATALOG[name], train=train, test=test))


def expect_archive(monkeypatch: pytest.MonkeyPatch, name: str, archive: Path, urls: tuple[str, ...] = ()) -> None:
    """Lets the catalog know this archive instead of the official one."""
    contents = archive.read_bytes()
    item = dataclasses.replace(
        CATALOG[name].downloads[0], md5=hashlib.md5(contents).hexdigest(), size=len(contents), urls=urls
    )
    monkeypatch.setitem(CATALOG, name, dataclasses.replace(CATALOG[name], downloads=(item,)))


def random_arrays(name: str, train: int, test: int) -> Arrays:
    rng = np.random.default_rng(5)
    facts = CATALOG[name]
    return Arrays(*(part for count in (train, test) for part in _random_split(rng, count, facts.shape, facts.classes)))


def _random_split(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), rng.permutation(np.arange(count) % classes)


def small_cifar(monkeypatch: pytest.MonkeyPatch, name: str) -> Arrays:
    train, test = CIFAR_SIZES[name]
    shrink(monkeypatch, name, train, test)
    return random_arrays(name, train, test)


def assert_same(dataset: Dataset, arrays: Arrays) -> None:
    for field, expected in arrays._asdict().items():
        found = getattr(dataset, field)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, err_msg=field)


def python2_batch(x: np.ndarray, labels: Iterable[int], label_key: str) -> bytes:
    """The very opcodes that Python 2 wrote for the official batches: protocol 2, text and pixels as byte strings."""
    pixels = x.reshape(len(x), -1)
    shape = b"M" + struct.pack("<H", pixels.shape[0]) + b"M" + struct.pack("<H", pixels.shape[1]) + b"\x86"
    dtype = (
        b"cnumpy\ndtype\n"
        + _string(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + _string(b"|")
        + b"NNN"
        + 2 * b"J\xff\xff\xff\xff"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _string(b"b") + b"\x87R(K\x01" + shape
    array += dtype + b"K\x00tb\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    head = _string(b"batch_label") + _string(b"made for a test")
    return b"\x80\x02}(" + head + _string(label_key.encode()) + numbers + _string(b"data") + array + b"u."


def _string(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


def cifar_batches(monkeypatch: pytest.MonkeyPatch, name: str, arrays: Arrays) -> dict[str, bytes]:
    """Batches of these pictures, whose digests are expected in place of the published ones."""
    batches = _cifar_batches(name, arrays)
    digests = {batch: hashlib.md5(contents).hexdigest() for batch, contents in batches.items()}
    monkeypatch.setitem(published.CIFAR_MD5, name, digests)
    return batches


def _cifar_batches(name: str, arrays: Arrays) -> dict[str, bytes]:
    key = CIFAR_LABELS[name][0]
    if name == "cifar100":
        train = {"train": python2_batch(arrays.x_train, arrays.y_train, key)}
        return train | {"test": python2_batch(arrays.x_test, arrays.y_test, key)}
    parts = zip(np.split(arrays.x_train, 5), np.split(arrays.y_train, 5), strict=True)
    train = {f"data_batch_{number}": python2_batch(x, y, key) for number, (x, y) in enumerate(parts, start=1)}
    return train | {"test_batch": python2_batch(arrays.x_test, arrays.y_test, key)}


def write_batches(folder: Path, batches: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for batch, contents in batches.items():
        (folder / batch).write_bytes(contents)
    return folder


def write_archive(folder: Path, name: str, batches: dict[str, bytes]) -> Path:
    """Members in the reverse order, as nothing promises one."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / CATALOG[name].downloads[0].filename
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for batch, contents in reversed(batches.items()):
            member = tarfile.TarInfo(f"{CIFAR_FOLDERS[name]}/{batch}")
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))
    return archive


def encode(picture: np.ndarray, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0))
    image.save(stream, form, **({"lossless": True} if form == "WEBP" else {}))
    return stream.getvalue()


def write_parquet(file: Path, x: np.ndarray, y: np.ndarray, image: str, label: str, form: str = "PNG") -> None:
    write_encoded(file, [encode(picture, form) for picture in x], y, image, label)


def write_encoded(file: Path, encoded: list[bytes], y: np.ndarray, image: str, label: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = [{"bytes": picture, "path": None} for picture in encoded]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({image: pa.array(pictures, kind), label: pa.array(y, pa.int64())}), file, row_group_size=16)


def idx_contents(values: np.ndarray) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", 0x0800 | values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def write_idx(folder: Path, arrays: Arrays, zipped: bool = True) -> dict[str, str]:
    """Writes the four files and returns the digests of their contents."""
    folder.mkdir(parents=True, exist_ok=True)
    stems = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    values = (arrays.x_train[:, 0], arrays.y_train, arrays.x_test[:, 0], arrays.y_test)
    digests = {}
    for stem, value in zip(stems, values, strict=True):
        contents = idx_contents(value)
        digests[stem] = hashlib.sha256(contents).hexdigest()
        (folder / (f"{stem}.gz" if zipped else stem)).write_bytes(gzip.compress(contents) if zipped else contents)
    return digests


def write_pictures(root: Path, x: np.ndarray, y: np.ndarray, suffix: str = "png") -> None:
    """One folder for each class: class-0, class-1, ..."""
    for number, (picture, label) in enumerate(zip(x, y, strict=True)):
        place = root / f"class-{label}"
        place.mkdir(parents=True, exist_ok=True)
        form = {"jpg": "JPEG"}.get(suffix, suffix.upper())
        (place / f"{number:03d}.{suffix}").write_bytes(encode(picture, form))


class Trap:
    """Whose pickle leaves a trace when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.trace}",)


def assert_damage_is_refused_or_harmless(file: Path, load: Callable[[], np.ndarray], step: int) -> None:
    """Cut at, and with a flipped byte at, every so many bytes: an error of ours, or the same numbers as before."""
    whole, expected = file.read_bytes(), load()
    for position in range(0, len(whole), step):
        file.write_bytes(whole[:position])
        with pytest.raises(FedSeqError):
            load()
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0xD5]) + whole[position + 1 :])
        try:
            found = load()
        except FedSeqError:
            continue
        np.testing.assert_array_equal(found, expected)
