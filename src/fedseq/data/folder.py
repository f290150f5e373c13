"""Your own pictures: train/CLASS/* and test/CLASS/*, all of the same size; by client, train/CLIENT/CLASS/*.

The classes are the sorted names of the folders in train/. Pictures become RGB unless all of them are greyscale;
transparency is dropped, and of a moving picture the first frame counts. Hidden files and other suffixes are ignored.
Where clients are told apart (--clients-by folder), each has its folders of classes, and test/ may be missing.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.data.cache import cached
from fedseq.data.dataset import Arrays, Column, Dataset, Progress, Wanted, half_scaled
from fedseq.data.pictures import Encoded, common_format, decode_all

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif"}
CLIENT_COLUMN = "folder"  # what --clients-by says of folders by client


class Listing(NamedTuple):
    files: tuple[Path, ...]  # those of train, then those of test, if it has a test set
    labels: np.ndarray
    train: int


def load_folder(name: str, root: Path, wanted: Wanted, progress: Progress) -> Dataset:
    require_folder(root)
    if wanted.columns:
        return _load_clients(name, root, wanted.columns, progress)
    classes = tuple(place.name for place in class_folders(root / "train"))
    return half_scaled(name, read_listing(root, _list_splits(root, classes), progress), classes)


def _load_clients(name: str, root: Path, columns: tuple[str, ...], progress: Progress) -> Dataset:
    """Pictures in train/CLIENT/CLASS/, and in test/CLIENT/CLASS/ if it is there."""
    for column in columns:
        if column != CLIENT_COLUMN:
            raise FedSeqError(
                f"{root}: {unknown('column', column, [CLIENT_COLUMN])} Clients are the folders in train/."
            )
    tested = ("test",) if (root / "test").exists() else ()
    splits = [_client_folders(root / split) for split in ("train", *tested)]
    classes = tuple(sorted({place.name for client in splits[0] for place in class_folders(client)}))
    found = [[list_pictures(client, classes) for client in clients] for clients in splits]
    files = tuple(file for listings in found for listing in listings for file in listing.files)
    labels = np.concatenate([listing.labels for listings in found for listing in listings])
    names = [
        np.repeat([client.name for client in clients], [listing.train for listing in listings])
        for clients, listings in zip(splits, found, strict=True)
    ]
    train = sum(listing.train for listing in found[0])
    whose = Column(names[0], names[1] if tested else names[0][:0])
    arrays = read_listing(root, Listing(files, labels, train), progress)
    return half_scaled(name, arrays, classes, {CLIENT_COLUMN: whose})


def _client_folders(split: Path) -> list[Path]:
    clients = class_folders(split, "CLIENT/CLASS/")
    for client in clients:
        if not any(place.is_dir() and not place.name.startswith(".") for place in client.iterdir()):
            raise FedSeqError(f"{client}: this client holds nothing; pictures are expected in {client.name}/CLASS/.")
    return clients


def require_folder(root: Path) -> None:
    if not root.is_dir():
        raise FedSeqError(f"the data folder {root} does not exist.")


def read_listing(root: Path, listing: Listing, progress: Progress) -> Arrays:
    decode, check = partial(_decode, listing, progress), partial(_check, root, listing)
    return cached("folder", listing.files, decode, check, private=True)


def class_folders(split: Path, below: str = "CLASS/") -> list[Path]:
    if not split.is_dir():
        raise FedSeqError(f"{split} does not exist; pictures are expected in train/{below} and test/{below}.")
    places = sorted(place for place in split.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not places:
        raise FedSeqError(f"{split} has no folders; pictures are expected in {split.name}/{below}.")
    return places


def _list_splits(root: Path, classes: tuple[str, ...]) -> Listing:
    train, test = (list_pictures(root / split, classes) for split in ("train", "test"))
    return Listing(train.files + test.files, np.concatenate([train.labels, test.labels]), train.train)


def list_pictures(split: Path, classes: tuple[str, ...]) -> Listing:
    """The pictures of one set, whose labels are the positions of its folders' names in `classes`."""
    numbers = {label: number for number, label in enumerate(classes)}
    found: list[tuple[Path, int]] = []
    for place in class_folders(split):
        if place.name not in numbers:
            raise FedSeqError(f"{place}: there is no class '{place.name}' in train; it has {', '.join(classes)}.")
        found += [(file, numbers[place.name]) for file in _pictures(place)]
    files, labels = zip(*found, strict=True)
    return Listing(files, np.array(labels, dtype=np.int64), len(files))


def _pictures(place: Path) -> list[Path]:
    visible = (file for file in place.iterdir() if file.is_file() and not file.name.startswith("."))
    files = sorted(file for file in visible if file.suffix.lower() in _SUFFIXES)
    if not files:
        raise FedSeqError(f"{place}: no pictures ({', '.join(sorted(_SUFFIXES))}) in this class.")
    return files


def pictures_below(folder: Path) -> list[Path]:
    """Pictures in a folder and in folders inside it, sorted."""
    inside = (file for file in folder.rglob("*") if file.is_file() and file.suffix.lower() in _SUFFIXES)
    files = sorted(file for file in inside if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    if not files:
        raise FedSeqError(f"{folder}: no pictures ({', '.join(sorted(_SUFFIXES))}) in this folder.")
    return files


def _decode(listing: Listing, progress: Progress) -> Arrays:
    pictures: list[Encoded] = [(file, str(file)) for file in listing.files]
    size, mode = common_format(pictures)
    x = decode_all(pictures, len(pictures), size, mode, progress)
    y, train = listing.labels, listing.train
    return Arrays(x[:train], y[:train], x[train:], y[train:])


def _check(root: Path, listing: Listing, arrays: Arrays) -> None:
    y, train = listing.labels, listing.train
    for x, found, expected in ((arrays.x_train, arrays.y_train, y[:train]), (arrays.x_test, arrays.y_test, y[train:])):
        labels_right = found.dtype == np.int64 and np.array_equal(found, expected)
        if not labels_right or x.dtype != np.uint8 or x.ndim != 4 or len(x) != len(expected):
            raise FedSeqError(f"{root}: the decoded pictures do not match the files.")
