"""Your own files, read as columns; columns.py makes a data set of them.

csv:FILE      a header and lines of values, separated by commas, semicolons or tabs
parquet:FILE  a table of numbers and words, or pictures as Hugging Face stores them; * stands for several files
npz:FILE      arrays x_train, y_train, x_test and y_test, or x and y, of which a part is held out. A column COLUMN, such
              as whose each example is, is an array COLUMN beside x and y, or COLUMN_train (and COLUMN_test)
folder:DIR    pictures in train/CLASS/* and test/CLASS/*, all of the same size; by client, train/CLIENT/CLASS/*

Pictures become RGB unless all of them are greyscale; transparency is dropped, and of a moving picture the first frame
counts. Hidden files and other suffixes are ignored. One set of labelled examples (a client's of a real federation, or
the server's to test with) is read from npz:FILE, folder:DIR with CLASS/* in it, or parquet:FILE with pictures.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.data.cache import cached
from fedseq.data.columns import ClassNames, NamedColumns, Values
from fedseq.data.dataset import Arrays, Progress, Wanted, silent
from fedseq.data.parquet import IMAGE_COLUMNS, column_names, encoded_pictures, read_columns, read_labels
from fedseq.data.pictures import Encoded, common_format, decode_all
from fedseq.data.untrusted import array_of, opened_npz, refuse_web_page

_SEPARATORS = ",;\t"
_LONGEST_LINE = 2**24  # characters
_MISSING = frozenset(["NA", "N/A", "#N/A", "<NA>", "n/a", "NaN", "nan", "NULL", "null", "None"]) | {""}
_QUOTED = "\ue000"  # begins a cell that reads like a missing value and stood in quotes; a letter of private use
_PAIRS = (("x_train", "y_train"), ("x_test", "y_test"))
_LABEL_COLUMNS = ("label", "fine_label")
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif"}
CLIENT_COLUMN = "folder"  # what --clients-by says of folders by client


def read_csv(path: Path, wanted: Wanted, progress: Progress) -> NamedColumns:
    refuse_web_page(path)
    try:
        with open_plain(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            columns = _parse(path, text)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FedSeqError(f"{path} cannot be read as CSV in UTF-8: {error}.") from None
    progress(1, 1, "reading the table")
    return NamedColumns(str(path), columns)


def _parse(path: Path, text: io.TextIOWrapper) -> dict[str, Values]:
    head = _line(path, text)
    while head.count('"') % 2 and (more := _line(path, text)):  # a name with a line break in it
        head += more
    bare = re.sub('"[^"]*"', "", head)
    separator = max(_SEPARATORS, key=bare.count)
    header = [name.strip() for name in next(csv.reader([head], delimiter=separator, skipinitialspace=True), [])]
    if len(header) < 2 or not all(header):
        raise FedSeqError(f"{path}: the first line must name the columns, such as client,age,label.")
    if len(set(header)) < len(header):
        raise FedSeqError(f"{path}: the first line names a column twice.")
    rows: list[list[str]] = []
    for row in csv.reader(_lines(path, text, separator), delimiter=separator, strict=True):
        if len(row) != len(header) and row:
            raise FedSeqError(
                f"{path}: row {len(rows) + 1} has {len(row)} values, and there are {len(header)} columns."
            )
        if row:
            rows.append(row)
    if not rows:
        raise FedSeqError(f"{path} is empty: there are no rows in it.")
    return {
        name: [_cell(value) for value in cells] for name, cells in zip(header, zip(*rows, strict=True), strict=True)
    }


def _line(path: Path, text: io.TextIOWrapper) -> str:
    line = text.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise FedSeqError(f"{path} has a line of more than {_LONGEST_LINE:,} characters, and no longer one is read.")
    return line


def _lines(path: Path, text: io.TextIOWrapper, separator: str) -> Iterator[str]:
    """Cells such as "NA" are marked where they stand in quotes, which the csv module does not tell."""
    words = "|".join(map(re.escape, sorted(_MISSING - {""})))
    quoted = re.compile(rf'(?<![^{separator}])"(?=({words})"({separator}|\r|\n|$))')
    while line := _line(path, text):
        yield quoted.sub(f'"{_QUOTED}', line) if '"' in line else line


def _cell(value: str) -> str | None:
    if value.strip() in _MISSING:
        return None
    return value.removeprefix(_QUOTED)


def read_npz(path: Path, wanted: Wanted, progress: Progress) -> NamedColumns:
    refuse_web_page(path)
    with opened_npz(path) as stored:
        array = partial(array_of, path, stored)
        if {"x", "y"} <= set(stored.files) and "x_train" not in stored.files:
            train = {key: array(key) for key in ("x", "y", *wanted.columns)}
            found = NamedColumns(str(path), train, inputs="x", label="y", numbered=True)
        else:
            train = {key: array(f"{key}_train") for key in ("x", "y", *wanted.columns)}
            tested = [key for key in wanted.columns if f"{key}_test" in stored.files]
            test = {key: array(f"{key}_test") for key in ("x", "y", *tested)}
            found = NamedColumns(str(path), train, test, "x", "y", numbered=True, suffixes=("_train", "_test"))
    progress(1, 1, "reading arrays")
    return found


def read_npz_pair(path: Path, class_names: ClassNames | None) -> NamedColumns:
    """Arrays x and y, or the only pair of x_train and y_train or x_test and y_test."""
    refuse_web_page(path)
    with opened_npz(path) as stored:
        pairs = [pair for pair in _PAIRS if set(pair) <= set(stored.files)]
        if {"x", "y"} <= set(stored.files):
            pairs = [("x", "y")]
        if len(pairs) != 1:
            reason = "both a training set and a test set" if pairs else "no arrays x and y"
            raise FedSeqError(
                f"{path}: {reason}; it has {', '.join(stored.files) or 'no arrays'}. Store the examples as x and "
                "their labels as y; one of x_train, y_train and x_test, y_test will also do."
            )
        ((x, y),) = pairs
        columns = {key: array_of(path, stored, key) for key in (x, y)}
        return NamedColumns(str(path), columns, inputs=x, label=y, numbered=True)


def read_parquet(path: Path, wanted: Wanted, progress: Progress) -> NamedColumns:
    files = _matching(path)
    present = column_names(files[0])
    if not set(present) & set(IMAGE_COLUMNS):
        stored = NamedColumns(str(path), read_columns(files, present))
        progress(1, 1, "reading the table")
        return stored
    for name in wanted.columns:
        if name not in present:
            raise FedSeqError(f"{path}: {unknown('column', name, present)}")
    columns = {**read_columns(files, wanted.columns), **_pictures(path, files, wanted.label, progress)}
    return NamedColumns(str(path), columns, inputs="image", label=wanted.label or "label", numbered=True)


def read_parquet_pictures(path: Path, class_names: ClassNames | None) -> NamedColumns:
    columns = _pictures(path, _matching(path), None, silent)
    return NamedColumns(str(path), columns, inputs="image", numbered=True)


def _pictures(path: Path, files: tuple[Path, ...], label: str | None, progress: Progress) -> dict[str, Values]:
    """Pictures and their classes, which are kept with them: a client that starts again need not import pyarrow."""

    def decode() -> Arrays:
        y = read_labels(files, (label,) if label else _LABEL_COLUMNS)
        if not len(y):
            raise FedSeqError(f"{path} is empty: there are no rows in it.")
        size, mode = common_format(encoded_pictures(files))
        x = decode_all(encoded_pictures(files), len(y), size, mode, progress)
        return Arrays(x, y, x[:0], y[:0])

    arrays = cached(
        "-".join(["parquet", *([label] if label else [])]), files, decode, partial(_check, path), private=True
    )
    progress(1, 1, "reading pictures")
    return {"image": arrays.x_train, label or "label": arrays.y_train}


def _matching(path: Path) -> tuple[Path, ...]:
    files = [path]
    if "*" in path.name:
        visible = (file for file in path.parent.iterdir() if file.is_file() and not file.name.startswith("."))
        files = sorted(file for file in visible if fnmatchcase(file.name, path.name))
    if not files:
        raise FedSeqError(f"{path}: no file has such a name.")
    for file in files:
        refuse_web_page(file)
    return tuple(files)


def read_folder(root: Path, wanted: Wanted, progress: Progress) -> NamedColumns:
    """The classes are the sorted names of the folders in train/; by client, test/ may be missing."""
    _require_folder(root)
    for column in wanted.columns:
        if column != CLIENT_COLUMN:
            known = unknown("column", column, [CLIENT_COLUMN])
            raise FedSeqError(f"{root}: {known} Clients are the folders in train/.")
    by_client = bool(wanted.columns)
    names = ("train", "test") if not by_client or (root / "test").exists() else ("train",)
    groups = [_client_folders(root / split) if by_client else [root / split] for split in names]
    classes = tuple(sorted({place.name for group in groups[0] for place in _class_folders(group)}))
    found = [[(group, *_listed(group, classes)) for group in split] for split in groups]
    files = [file for split in found for _, listed, _ in split for file in listed]
    labels = [np.concatenate([numbers for _, _, numbers in split]) for split in found]
    x = np.split(_decoded(root, files, np.concatenate(labels), progress), [len(labels[0])])
    columns: list[dict[str, Values]] = []
    for part, y, split in zip(x, labels, found, strict=False):
        owners = np.repeat([group.name for group, _, _ in split], [len(numbers) for _, _, numbers in split])
        columns.append({"x": part, "y": y, CLIENT_COLUMN: owners})
    train, test = columns if len(columns) > 1 else (columns[0], None)
    return NamedColumns(str(root), train, test, inputs="x", label="y", numbered=True, class_names=classes)


def read_class_folders(root: Path, class_names: ClassNames | None) -> NamedColumns:
    _require_folder(root)
    present = tuple(place.name for place in _class_folders(root))
    if {"train", "test"} <= set(present) - set(class_names or ()):
        raise FedSeqError(f"{root}: both a training set and a test set. Name one of them, as in folder:{root}/train.")
    names = class_names or present
    for name in present:
        if name not in names:
            raise FedSeqError(f"{root / name}: {unknown('class', name, names)} The server names the classes.")
    files, labels = _listed(root, names)
    columns = {"x": _decoded(root, files, labels, silent), "y": labels}
    return NamedColumns(str(root), columns, inputs="x", label="y", numbered=True, class_names=names)


def _require_folder(root: Path) -> None:
    if not root.is_dir():
        raise FedSeqError(f"the data folder {root} does not exist.")


def _client_folders(split: Path) -> list[Path]:
    clients = _class_folders(split, "CLIENT/CLASS/")
    for client in clients:
        if not any(place.is_dir() and not place.name.startswith(".") for place in client.iterdir()):
            raise FedSeqError(f"{client}: this client holds nothing; pictures are expected in {client.name}/CLASS/.")
    return clients


def _class_folders(split: Path, below: str = "CLASS/") -> list[Path]:
    if not split.is_dir():
        raise FedSeqError(f"{split} does not exist; pictures are expected in train/{below} and test/{below}.")
    places = sorted(place for place in split.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not places:
        raise FedSeqError(f"{split} has no folders; pictures are expected in {split.name}/{below}.")
    return places


def _listed(split: Path, classes: ClassNames) -> tuple[list[Path], np.ndarray]:
    """The pictures of one set, whose labels are the positions of its folders' names in `classes`."""
    found: list[tuple[Path, int]] = []
    for place in _class_folders(split):
        if place.name not in classes:
            raise FedSeqError(f"{place}: there is no class '{place.name}' in train; it has {', '.join(classes)}.")
        files = sorted(file for file in place.iterdir() if _is_picture(file))
        if not files:
            raise FedSeqError(f"{place}: no pictures ({', '.join(sorted(_SUFFIXES))}) in this class.")
        found += [(file, classes.index(place.name)) for file in files]
    return [file for file, _ in found], np.array([label for _, label in found], dtype=np.int64)


def _is_picture(file: Path) -> bool:
    return not file.name.startswith(".") and file.suffix.lower() in _SUFFIXES and file.is_file()


def pictures_below(folder: Path) -> list[Path]:
    """Pictures in a folder and in folders inside it, sorted."""
    inside = (file for file in folder.rglob("*") if _is_picture(file))
    files = sorted(file for file in inside if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    if not files:
        raise FedSeqError(f"{folder}: no pictures ({', '.join(sorted(_SUFFIXES))}) in this folder.")
    return files


def _decoded(root: Path, files: Sequence[Path], labels: np.ndarray, progress: Progress) -> np.ndarray:
    def decode() -> Arrays:
        pictures: list[Encoded] = [(file, str(file)) for file in files]
        x = decode_all(pictures, len(files), *common_format(pictures), progress)
        return Arrays(x, labels, x[:0], labels[:0])

    return cached("folder", files, decode, partial(_check, root, count=len(files)), private=True).x_train


def _check(where: Path, arrays: Arrays, count: int | None = None) -> None:
    x, y = arrays.x_train, arrays.y_train
    right = x.dtype == np.uint8 and x.ndim == 4 and y.dtype == np.int64 and y.shape == x.shape[:1]
    if not right or len(y) != (count or len(y) or -1):
        raise FedSeqError(f"{where}: the decoded pictures do not match the files.")


FILES: dict[str, Callable[[Path, Wanted, Progress], NamedColumns]] = {
    "csv": read_csv, "parquet": read_parquet, "npz": read_npz, "folder": read_folder
}  # fmt: skip
LABELLED_FILES: dict[str, Callable[[Path, ClassNames | None], NamedColumns]] = {
    "npz": read_npz_pair, "folder": read_class_folders, "parquet": read_parquet_pictures
}  # fmt: skip
