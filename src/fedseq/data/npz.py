"""Your own arrays: x_train, y_train, x_test and y_test in one .npz file, or x and y, of which a part is held out.

A column COLUMN, such as whose each example is, is an array COLUMN beside x and y, or COLUMN_train and, for the test
set, COLUMN_test.

uint8 arrays are pictures: [n, height, width] gets a channel, [n, height, width, channels] is turned to channels first
if there are 1, 3 or 4 channels and the second dimension is not one of these, and other [n, a, b, c] are taken to be
channels first already. uint8 [n, length] is text: characters by number, and which one comes next is the label.
Floating-point arrays are features of any shape, used as they are, in float32.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.dataset import Arrays, Column, Dataset, Progress, Wanted, half_scaled
from fedseq.data.natural import column_values
from fedseq.data.untrusted import refuse_growth, refuse_web_page

_CHANNELS = (1, 3, 4)
# What numpy raises for damaged files: from the zip archive, the header (parsed as Python literals) or the contents.
_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    SyntaxError,
    MemoryError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_npz(name: str, path: Path, wanted: Wanted, progress: Progress) -> Dataset:
    refuse_web_page(path)
    with opened_npz(path) as stored:
        one_set = {"x", "y"} <= set(stored.files) and "x_train" not in stored.files
        columns = {key: _column(path, stored, key, one_set) for key in wanted.columns}
        if one_set:
            return _load_one_set(name, path, stored, columns, progress)
    arrays = read_npz(path)
    check_labels(path, "y_train", arrays.y_train, arrays.x_train)
    check_labels(path, "y_test", arrays.y_test, arrays.x_test)
    check_columns(path, columns, arrays)
    x_train, x_test = (
        checked_inputs(path, key, x) for key, x in (("x_train", arrays.x_train), ("x_test", arrays.x_test))
    )
    if (x_train.dtype, x_train.shape[1:]) != (x_test.dtype, x_test.shape[1:]):
        raise FedSeqError(
            f"{path}: x_train holds {x_train.dtype} {list(x_train.shape[1:])} and x_test {x_test.dtype} "
            f"{list(x_test.shape[1:])}; both must have the same type and shape."
        )
    labels = numbered_classes(path, arrays.y_train, arrays.y_test, *_characters(x_train, x_test))
    prepared = Arrays(x_train, arrays.y_train.astype(np.int64), x_test, arrays.y_test.astype(np.int64))
    progress(1, 1, "reading arrays")
    return half_scaled(name, prepared, labels, columns)


def _load_one_set(
    name: str, path: Path, stored: np.lib.npyio.NpzFile, columns: Mapping[str, Column], progress: Progress
) -> Dataset:
    x, y = member(path, stored, "x"), member(path, stored, "y")
    check_labels(path, "y", y, x)
    x, y = checked_inputs(path, "x", x), y.astype(np.int64)
    arrays = Arrays(x, y, x[:0], y[:0])
    check_columns(path, columns, arrays)
    progress(1, 1, "reading arrays")
    return half_scaled(name, arrays, numbered_classes(path, y, *_characters(x)), columns)


def _column(path: Path, stored: np.lib.npyio.NpzFile, name: str, one_set: bool) -> Column:
    if one_set:
        values = column_values(str(path), name, member(path, stored, name))
        return Column(values, values[:0])
    train = column_values(str(path), f"{name}_train", member(path, stored, f"{name}_train"))
    tested = f"{name}_test" in stored.files
    test = column_values(str(path), f"{name}_test", member(path, stored, f"{name}_test")) if tested else train[:0]
    if len(test) and train.dtype.kind != test.dtype.kind:
        train, test = train.astype(str), test.astype(str)
    return Column(train, test)


def check_columns(path: Path, columns: Mapping[str, Column], arrays: Arrays) -> None:
    for name, column in columns.items():
        for found, expected in ((column.train, arrays.y_train), (column.test, arrays.y_test)):
            if len(found) != len(expected) and (len(found) or found is column.train):
                raise FedSeqError(f"{path}: {name} has {len(found)} values for {len(expected)} examples.")


def read_npz(path: Path) -> Arrays:
    """The four arrays, unchanged."""
    with opened_npz(path) as stored:
        return Arrays(*(member(path, stored, key) for key in Arrays._fields))


@contextmanager
def opened_npz(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The zip archive's checksums are verified as arrays are read; all damage becomes an error that names the file."""
    try:
        if not zipfile.is_zipfile(path):  # numpy would also take a lone array, or try a pickle
            raise FedSeqError(f"{path}: not an .npz file, or an incomplete one.")
        _refuse_bomb(path)
        with np.load(path, allow_pickle=False) as stored:
            yield stored
    except _DAMAGE as error:
        raise FedSeqError(f"{path} cannot be read: {error}.") from error


def _refuse_bomb(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        inside = archive.infolist()
    size, packed = sum(entry.file_size for entry in inside), sum(entry.compress_size for entry in inside)
    refuse_growth(path, packed, size)


def read_array(path: Path) -> np.ndarray:
    """Numbers without labels: an .npy file, or of an .npz file the array x, or the only one there is."""
    if path.suffix == ".npz":
        with opened_npz(path) as stored:
            value = member(path, stored, stored.files[0] if len(stored.files) == 1 else "x")
    else:
        try:
            value = np.load(path, allow_pickle=False)
        except _DAMAGE as error:
            raise FedSeqError(f"{path} is not a readable .npy file of numbers ({type(error).__name__}).") from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "uif":
        raise FedSeqError(f"{path} does not hold numbers.")
    return value


def member(path: Path, stored: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
    if key not in stored.files:
        raise FedSeqError(f"{path}: array '{key}' is missing; it has {', '.join(stored.files) or 'none'}.")
    value = stored[key]
    if not isinstance(value, np.ndarray):
        raise FedSeqError(f"{path}: '{key}' is not an array.")
    return value


def numbered_classes(path: Path, *labels: np.ndarray) -> tuple[str, ...]:
    """Names for classes that only have numbers. A number beyond all sense would make a model of that size."""
    classes = max(int(part.max()) for part in labels) + 1
    examples = sum(len(part) for part in labels)
    if classes > examples:
        raise FedSeqError(f"{path}: label {classes - 1} among {examples} examples; number the classes from 0.")
    return tuple(str(label) for label in range(classes))


def _characters(*inputs: np.ndarray) -> list[np.ndarray]:
    """All that may come next in a text; nothing for other inputs."""
    return [x.ravel() for x in inputs if x.dtype == np.int64]


def check_labels(path: Path, key: str, labels: np.ndarray, inputs: np.ndarray) -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise FedSeqError(f"{path}: {key} must be a list of integers, not {labels.dtype} {list(labels.shape)}.")
    if inputs.ndim == 0 or len(inputs) != len(labels):
        raise FedSeqError(
            f"{path}: {key} has {len(labels)} labels, but x{key[1:]} has shape {list(inputs.shape)}; "
            "there must be one label for each example."
        )
    if inputs.size == 0:
        raise FedSeqError(f"{path}: x{key[1:]} is empty.")
    refuse_negative(path, key, labels)


def refuse_negative(path: Path, key: str, labels: np.ndarray) -> None:
    if labels.min() < 0:
        raise FedSeqError(f"{path}: {key} has the label {labels.min()}; classes are numbered from 0.")


def checked_inputs(path: Path, key: str, x: np.ndarray, kind: str = "float32") -> np.ndarray:
    if x.dtype == np.uint8:
        return x.astype(np.int64) if x.ndim == 2 else _pictures(path, key, x)
    if not np.issubdtype(x.dtype, np.floating):
        raise FedSeqError(f"{path}: {key} is {x.dtype}; pictures must be uint8 and features floating point.")
    with np.errstate(over="ignore"):  # what the type cannot hold becomes infinite, and is refused below
        features = x.astype(kind)
    if not np.isfinite(features).all():
        raise FedSeqError(f"{path}: {key} has values that are not finite numbers in {kind} (NaN or infinite).")
    return features


def _pictures(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        return x[:, None]
    if x.ndim != 4:
        raise FedSeqError(f"{path}: {key} is uint8 with {x.ndim} dimensions; pictures have 3 or 4, features are float.")
    channels_last = x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if channels_last else x
