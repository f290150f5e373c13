"""One set of labelled examples: what a client of a real federation has, or the server to test with.

npz:FILE      arrays x and y as in npz.py, or the only pair of x_train and y_train or x_test and y_test
folder:DIR    pictures in DIR/CLASS/, as in folder.py
parquet:FILE  pictures and numbers as Hugging Face stores them; FILE may hold * for several files

The server's set says which classes there are: the folder names in their order, or the numbers from 0. A client is told
them, since it may lack some: its folders are looked up among them, and its numbers count from the first.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from fedseq.basics.errors import MANY, FedSeqError, unknown
from fedseq.data.cache import cached
from fedseq.data.dataset import Arrays, silent
from fedseq.data.folder import class_folders, list_pictures, read_listing, require_folder
from fedseq.data.npz import check_labels, checked_inputs, member, numbered_classes, opened_npz, refuse_negative
from fedseq.data.parquet import encoded_pictures, read_labels
from fedseq.data.pictures import common_format, decode_all
from fedseq.data.untrusted import refuse_web_page

LABELLED_SOURCES = {
    "npz:FILE": "arrays x and y in one .npz file",
    "folder:DIR": "pictures in DIR/CLASS/*",
    "parquet:FILE": "pictures and labels as Hugging Face stores them; * in the name stands for several files",
}
_PAIR = ("x", "y")
_OTHER_PAIRS = (("x_train", "y_train"), ("x_test", "y_test"))
_LABEL_COLUMNS = ("label", "fine_label")

ClassNames = tuple[str, ...]


@dataclass(frozen=True, eq=False)  # as for Dataset, comparing field by field would fail
class Labelled:
    x: np.ndarray  # uint8 [n, channels, height, width], or float32 or float64 [n, ...] features
    y: np.ndarray  # int64 [n], 0..classes-1
    class_names: ClassNames


def check_labelled_name(source: str) -> None:
    """Cheap enough to be called before anything else is done."""
    kind, _, path = source.partition(":")
    if kind not in _READERS or not path:
        raise unknown("set of examples", source, LABELLED_SOURCES)


def load_labelled(source: str, class_names: ClassNames | None = None, features: str = "float32") -> Labelled:
    """Reads one set, with features of this type.

    `class_names` are those that the server names; without them, the set itself says what they are.
    """
    check_labelled_name(source)
    kind, _, place = source.partition(":")
    try:
        return _READERS[kind](expanded(place), class_names, features)
    except (OSError, MemoryError) as error:  # what the readers do not foresee, such as a folder without permission
        raise FedSeqError(f"{place} cannot be read: {str(error) or 'it does not fit into memory'}.") from error


def expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        raise FedSeqError(f"{place}: no such user's home is known here. Write out the whole path.") from error


def _read_npz(path: Path, class_names: ClassNames | None, features: str) -> Labelled:
    refuse_web_page(path)
    with opened_npz(path) as stored:
        x_key, y_key = _choose_pair(path, stored.files)
        x, y = member(path, stored, x_key), member(path, stored, y_key)
    check_labels(path, y_key, y, x)
    names = _class_names(path, y, class_names)
    return Labelled(checked_inputs(path, x_key, x, features), y.astype(np.int64), names)


def _choose_pair(path: Path, present: list[str]) -> tuple[str, str]:
    if set(_PAIR) <= set(present):
        return _PAIR
    pairs = [pair for pair in _OTHER_PAIRS if set(pair) <= set(present)]
    if len(pairs) == 1:
        return pairs[0]
    reason = "both a training set and a test set" if pairs else "no arrays x and y"
    raise FedSeqError(
        f"{path}: {reason}; it has {', '.join(present) or 'no arrays'}. "
        "Store the examples as x and their labels as y; one of x_train, y_train and x_test, y_test will also do."
    )


def _read_folder(root: Path, class_names: ClassNames | None, features: str) -> Labelled:
    require_folder(root)
    present = tuple(place.name for place in class_folders(root))
    if {"train", "test"} <= set(present) - set(class_names or ()):
        raise FedSeqError(f"{root}: both a training set and a test set. Name one of them, as in folder:{root}/train.")
    if class_names is None:
        class_names = present
    for name in present:
        if name not in class_names:
            raise FedSeqError(f"{root / name}: {unknown('class', name, class_names)} The server names the classes.")
    arrays = read_listing(root, list_pictures(root, class_names), silent)
    return Labelled(arrays.x_train, arrays.y_train, class_names)


def _read_parquet(path: Path, class_names: ClassNames | None, features: str) -> Labelled:
    return read_pictures(path, None, class_names)


def read_pictures(path: Path, labels: tuple[str, ...] | None, class_names: ClassNames | None = None) -> Labelled:
    """Pictures and numbers of parquet files, the numbers from the first of these columns that is there."""
    files = matching(path)
    for file in files:
        refuse_web_page(file)
    decode = partial(_decode_parquet, path, files, labels or _LABEL_COLUMNS)
    key = "-".join(["parquet", *(labels or ())])
    arrays = cached(key, files, decode, partial(_check, path), private=True)
    refuse_negative(path, "the label column", arrays.y_train)
    return Labelled(arrays.x_train, arrays.y_train, _class_names(path, arrays.y_train, class_names))


def matching(path: Path) -> tuple[Path, ...]:
    if "*" not in path.name:
        return (path,)
    visible = (file for file in path.parent.iterdir() if file.is_file() and not file.name.startswith("."))
    files = sorted(file for file in visible if fnmatchcase(file.name, path.name))
    if not files:
        raise FedSeqError(f"{path}: no file has such a name.")
    return tuple(files)


def _decode_parquet(path: Path, files: tuple[Path, ...], labels: tuple[str, ...]) -> Arrays:
    y = read_labels(files, labels)
    if not len(y):
        raise FedSeqError(f"{path} is empty: there are no rows in it.")
    size, mode = common_format(encoded_pictures(files))
    x = decode_all(encoded_pictures(files), len(y), size, mode, silent)
    return Arrays(x, y, x[:0], y[:0])


def _check(path: Path, arrays: Arrays) -> None:
    """Labels are taken from the cache too: with them, pyarrow need not be imported at each start of a client."""
    x, y = arrays.x_train, arrays.y_train
    if x.dtype != np.uint8 or x.ndim != 4 or y.dtype != np.int64 or y.shape != x.shape[:1] or not len(y):
        raise FedSeqError(f"{path}: the decoded pictures do not match the files.")


def _class_names(path: Path, y: np.ndarray, class_names: ClassNames | None) -> ClassNames:
    if class_names is None:
        return numbered_classes(path, y)
    if y.max() >= len(class_names):
        raise FedSeqError(
            f"{path}: label {y.max()}, but the server names {len(class_names)} classes. "
            f"Number yours as it does: {_numbered(class_names)}."
        )
    return class_names


def _numbered(class_names: ClassNames) -> str:
    shown = [f"{number} {name}" for number, name in enumerate(class_names)]
    return ", ".join(shown if len(shown) <= MANY else [*shown[:3], "...", shown[-1]])


_READERS = {"npz": _read_npz, "folder": _read_folder, "parquet": _read_parquet}
