"""Your own pictures: train/CLASS/* and test/CLASS/*, all of the same size.

The classes are the sorted names of the folders in train/. Pictures become RGB unless all of them are greyscale;
transparency is dropped, and of a moving picture the first frame counts. Hidden files and other suffixes are ignored.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedseq.data.cache import cached
from fedseq.data.dataset import Arrays, Dataset, Progress, half_scaled
from fedseq.data.images import decode_all, open_image
from fedseq.errors import FedSeqError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif"}


class _Listing(NamedTuple):
    files: tuple[Path, ...]  # those of train, then those of test
    labels: np.ndarray
    train: int


def load_folder(name: str, root: Path, progress: Progress) -> Dataset:
    if not root.is_dir():
        raise FedSeqError(f"the data folder {root} does not exist.")
    classes = tuple(place.name for place in _class_folders(root / "train"))
    listing = _list_pictures(root, classes)
    arrays = cached("folder", listing.files, partial(_decode, listing, progress), partial(_check, root, listing))
    return half_scaled(name, arrays, classes)


def _class_folders(split: Path) -> list[Path]:
    if not split.is_dir():
        raise FedSeqError(f"{split} does not exist; pictures are expected in train/CLASS/ and test/CLASS/.")
    places = sorted(place for place in split.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not places:
        raise FedSeqError(f"{split} has no folders; pictures are expected in {split.name}/CLASS/.")
    return places


def _list_pictures(root: Path, classes: tuple[str, ...]) -> _Listing:
    train, test = (_labelled(root / split, classes) for split in ("train", "test"))
    files, labels = zip(*train, *test, strict=True)
    return _Listing(files, np.array(labels, dtype=np.int64), len(train))


def _labelled(split: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    numbers = {label: number for number, label in enumerate(classes)}
    found = []
    for place in _class_folders(split):
        if place.name not in numbers:
            raise FedSeqError(f"{place}: there is no class '{place.name}' in train; it has {', '.join(classes)}.")
        found += [(file, numbers[place.name]) for file in _pictures(place)]
    return found


def _pictures(place: Path) -> list[Path]:
    visible = (file for file in place.iterdir() if file.is_file() and not file.name.startswith("."))
    files = sorted(file for file in visible if file.suffix.lower() in _SUFFIXES)
    if not files:
        raise FedSeqError(f"{place}: no pictures ({', '.join(sorted(_SUFFIXES))}) in this class.")
    return files


def _decode(listing: _Listing, progress: Progress) -> Arrays:
    size, mode = _common_format(listing.files)
    x = decode_all(((file, str(file)) for file in listing.files), len(listing.files), size, mode, progress)
    y, train = listing.labels, listing.train
    return Arrays(x[:train], y[:train], x[train:], y[train:])


def _common_format(files: tuple[Path, ...]) -> tuple[tuple[int, int], str]:
    """Size and mode, from the headers alone."""
    formats = [_format(file) for file in files]
    size = formats[0][0]
    for file, (other, _) in zip(files, formats, strict=True):
        if other != size:
            raise FedSeqError(
                f"{file}: {other[0]}x{other[1]} pixels, but {files[0]} has {size[0]}x{size[1]}; "
                "all pictures must have the same size."
            )
    return size, "L" if all(mode == "L" for _, mode in formats) else "RGB"


def _format(file: Path) -> tuple[tuple[int, int], str]:
    with open_image(file, str(file)) as image:
        return image.size, image.mode


def _check(root: Path, listing: _Listing, arrays: Arrays) -> None:
    y, train = listing.labels, listing.train
    for x, found, expected in ((arrays.x_train, arrays.y_train, y[:train]), (arrays.x_test, arrays.y_test, y[train:])):
        labels_right = found.dtype == np.int64 and np.array_equal(found, expected)
        if not labels_right or x.dtype != np.uint8 or x.ndim != 4 or len(x) != len(expected):
            raise FedSeqError(f"{root}: the decoded pictures do not match the files.")
