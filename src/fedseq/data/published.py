"""Data sets that come in files: CIFAR-10, CIFAR-100 (Krizhevsky, 2009) and Fashion-MNIST (Xiao et al., 2017).

CIFAR is read from the official archive, its extracted batches, or the parquet files of Hugging Face. Batches are
pickles, which could run anything when they are opened: only those with the published digests are. Fashion-MNIST comes
in four IDX files, gzipped or not; distributions recompress them, so the digests are those of the contents.
"""

import gzip
import hashlib
import math
import os
import pickle
import struct
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain
from fedseq.data.cache import cached, download_folder
from fedseq.data.dataset import Arrays, Dataset, Progress, Wanted, check_against, check_classes
from fedseq.data.parquet import encoded_pictures, read_labels
from fedseq.data.pictures import decode_all
from fedseq.data.untrusted import refuse_web_page
from fedseq.options.datasets import CATALOG
from fedseq.options.tables import Row

_CIFAR_LARGEST = 200 * 2**20  # bytes; the largest batch has 155 million
_CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
_CIFAR_LABELS = {"cifar10": ("label",), "cifar100": ("fine_label", "label")}  # columns of parquet files
CIFAR_MD5 = {  # as published; nobody can make another file with the MD5 digest of one that exists
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar100": {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
}
IDX_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_UNSIGNED_BYTE = 0x08  # the type code in the magic number 0x0000TTDD, where DD is the number of dimensions


@dataclass(frozen=True)
class Source:
    """The files of one form of a data set, of which at least one is there, and the function that reads them all."""

    files: tuple[Path, ...]
    read: Callable[[Progress], Arrays]

    @property
    def missing(self) -> list[Path]:
        return [file for file in self.files if not file.is_file()]

    @property
    def where(self) -> str:
        return str(self.files[0] if len(self.files) == 1 else self.files[0].parent)


def load(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    facts, source = CATALOG[name], _find_source(name, _folders(name, data_dir))
    check = partial(check_against, facts, source.where)
    arrays = cached(name, source.files, partial(source.read, progress), check)
    return Dataset(name, *arrays, facts.class_names, facts.mean, facts.std)


def _folders(name: str, data_dir: Path | None) -> list[Path]:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedSeqError(f"the data folder {data_dir} does not exist. Give another one with --data-dir.")
        return [data_dir, data_dir / name]
    variable = os.environ.get("FEDSEQ_DATA")
    chosen = [Path(variable).expanduser() / name] if variable else []
    system = [Path(CATALOG[name].system_folder)] if CATALOG[name].system_folder else []
    return [*chosen, download_folder(name), *system]


def _find_source(name: str, folders: list[Path]) -> Source:
    """The first complete one: half a download must not hide the whole data set in the next folder."""
    find: Callable[[str, Path], Iterator[Source]] = Row(CATALOG[name].finder).load()
    sources = [source for folder in folders for source in find(name, folder)]
    for source in sources:
        if not source.missing:
            return source
    gaps = [f"{source.where} lacks {', '.join(file.name for file in source.missing)}." for source in sources]
    official = ", ".join(f"{item.filename} (MD5 {item.md5})" for item in CATALOG[name].downloads)
    lines = [
        f"no {name} data in {' or '.join(map(str, folders))}.",
        *gaps,
        f"Run `fedseq data get {name}`, or name a folder with --data-dir and put in it: {official};",
        f"or {CATALOG[name].other_forms}.",
    ]
    raise FedSeqError("\n".join(lines))


def find_cifar(name: str, folder: Path) -> Iterator[Source]:
    archive = folder / CATALOG[name].downloads[0].filename
    if archive.is_file():
        yield Source((archive,), partial(_read_cifar, name, lambda: _members(name, archive)))
    for place in (folder / _CIFAR_FOLDERS[name], folder):
        files = tuple(place / batch for batch in CIFAR_MD5[name])
        if any(file.is_file() for file in files):
            yield Source(files, partial(_read_cifar, name, partial(_extracted, files)))
    for place in (folder, *_subfolders(name, folder)):
        train, test = (tuple(sorted(place.glob(f"{split}*.parquet"))) for split in ("train", "test"))
        if train or test:
            train, test = train or (place / "train.parquet",), test or (place / "test.parquet",)
            yield Source(train + test, partial(_read_parquet, name, train, test))


def _subfolders(name: str, folder: Path) -> list[Path]:
    """Hugging Face puts the files in a folder named after the configuration. One of another data set is no such."""
    others = CATALOG.keys() - {name}
    return sorted(place for place in folder.glob("*/") if place.name not in others)


def _members(name: str, archive: Path) -> Iterator[tuple[str, str, bytes]]:
    """The batches in the order of the archive, because going back in it means decompressing it again."""
    refuse_web_page(archive)
    wanted = {f"{_CIFAR_FOLDERS[name]}/{batch}" for batch in CIFAR_MD5[name]}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name in wanted and member.isfile() else None
                if file is not None:
                    yield Path(member.name).name, f"{archive}, {member.name}", file.read(_CIFAR_LARGEST)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise FedSeqError(f"{archive} is damaged or incomplete: {error}. Delete it and get it again.") from error


def _extracted(files: tuple[Path, ...]) -> Iterator[tuple[str, str, bytes]]:
    for file in files:
        refuse_web_page(file)
        with open_plain(file) as stream:
            yield file.name, str(file), stream.read(_CIFAR_LARGEST)


def _read_cifar(name: str, batches: Callable[[], Iterable[tuple[str, str, bytes]]], progress: Progress) -> Arrays:
    expected, parts = CIFAR_MD5[name], {}
    for batch, where, raw in batches():
        found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if found != expected[batch]:
            raise FedSeqError(
                f"{where} is not the published batch, or damaged: its MD5 digest is {found}, not {expected[batch]}. "
                f"As it is a pickle, it was not opened. Get it again with `fedseq data get {name}`, or give data of "
                "your own as npz:FILE or parquet:FILE."
            )
        with warnings.catch_warnings():  # of newer versions of numpy about how Python 2 pickled an array
            warnings.simplefilter("ignore")
            content = pickle.loads(raw, encoding="bytes")
        labels = content[b"fine_labels" if name == "cifar100" else b"labels"]
        parts[batch] = content[b"data"].reshape(-1, *CATALOG[name].shape), np.array(labels, dtype=np.int64)
        progress(len(parts), len(expected), "reading batches")
    missing = [batch for batch in expected if batch not in parts]
    if missing:
        raise FedSeqError(f"no {_CIFAR_FOLDERS[name]}/{missing[0]} is in the archive. Delete it and get it again.")
    *train, (x_test, y_test) = (parts[batch] for batch in expected)
    x_train, y_train = (np.concatenate(column) for column in zip(*train, strict=True))
    return Arrays(x_train, y_train, x_test, y_test)


def _read_parquet(name: str, train: tuple[Path, ...], test: tuple[Path, ...], progress: Progress) -> Arrays:
    facts, labels = CATALOG[name], []
    for files, count, what in ((train, facts.train, "training set"), (test, facts.test, "test set")):
        # Before any picture is decoded, which takes minutes: files of another data set are noticed by their labels.
        labels.append(read_labels(files, _CIFAR_LABELS[name], count))
        if len(labels[-1]) != count:
            names = ", ".join(file.name for file in files)
            raise FedSeqError(f"{files[0].parent}: {names} hold {len(labels[-1])} pictures, expected {count}.")
        check_classes(facts, f"{files[0].parent}: {what}", labels[-1])
    _, height, width = facts.shape
    x = decode_all(encoded_pictures(train + test), facts.train + facts.test, (width, height), "RGB", progress)
    return Arrays(x[: facts.train], labels[0], x[facts.train :], labels[1])


def find_fashion_mnist(name: str, folder: Path) -> Iterator[Source]:
    plain = [folder / stem for stem in IDX_SHA256]
    files = tuple(file if file.is_file() else file.with_name(f"{file.name}.gz") for file in plain)
    if any(file.is_file() for file in files):
        yield Source(files, partial(_read_fashion_mnist, name, files))


def _read_fashion_mnist(name: str, files: tuple[Path, ...], progress: Progress) -> Arrays:
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
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            contents = file.read(size + 1)  # one more than expected shows that there is too much, however much it is
    except (OSError, EOFError, zlib.error) as error:
        raise FedSeqError(f"{path} is damaged or incomplete: {error}. Get the file again.") from error
    if not contents.startswith(header):
        raise FedSeqError(f"{path}: not an IDX file of unsigned bytes with shape {list(shape)}.")
    if len(contents) != size:
        raise FedSeqError(f"{path}: {'more' if len(contents) > size else 'fewer'} than {size} bytes of contents.")
    if hashlib.sha256(contents).hexdigest() != IDX_SHA256[path.name.removesuffix(".gz")]:
        raise FedSeqError(f"{path}: the contents are not the published ones (SHA-256 differs). Get the file again.")
    return np.frombuffer(contents, np.uint8, offset=len(header)).reshape(shape).copy()  # a copy can be written to
