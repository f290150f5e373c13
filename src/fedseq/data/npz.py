"""Your own arrays: x_train, y_train, x_test and y_test in one .npz file.

uint8 arrays are pictures: [n, height, width] gets a channel, [n, height, width, channels] is turned to channels first
if there are 1, 3 or 4 channels and the second dimension is not one of these, and other [n, a, b, c] are taken to be
channels first already. Floating-point arrays are features of any shape, used as they are, in float32.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedseq.data.dataset import Arrays, Dataset, Progress, half_scaled
from fedseq.data.guard import refuse_web_page
from fedseq.errors import FedSeqError

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


def load_npz(name: str, path: Path, progress: Progress) -> Dataset:
    refuse_web_page(path)
    arrays = read_npz(path)
    check_labels(path, "y_train", arrays.y_train, arrays.x_train)
    check_labels(path, "y_test", arrays.y_test, arrays.x_test)
    labels = numbered_classes(path, arrays.y_train, arrays.y_test)
    x_train, x_test = (
        checked_inputs(path, key, x) for key, x in (("x_train", arrays.x_train), ("x_test", arrays.x_test))
    )
    if (x_train.dtype, x_train.shape[1:]) != (x_test.dtype, x_test.shape[1:]):
        raise FedSeqError(
            f"{path}: x_train holds {x_train.dtype} {list(x_train.shape[1:])} and x_test {x_test.dtype} "
            f"{list(x_test.shape[1:])}; both must have the same type and shape."
        )
    prepared = Arrays(x_train, arrays.y_train.astype(np.int64), x_test, arrays.y_test.astype(np.int64))
    progress(1, 1, "reading arrays")
    return half_scaled(name, prepared, labels)


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
        with np.load(path, allow_pickle=False) as stored:
            yield stored
    except _DAMAGE as error:
        raise FedSeqError(f"{path} cannot be read: {error}.") from error


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


def checked_inputs(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    if x.dtype == np.uint8:
        return _pictures(path, key, x)
    if not np.issubdtype(x.dtype, np.floating):
        raise FedSeqError(f"{path}: {key} is {x.dtype}; pictures must be uint8 and features floating point.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused below
        features = x.astype(np.float32)
    if not np.isfinite(features).all():
        raise FedSeqError(f"{path}: {key} has values that are not finite numbers in float32 (NaN or infinite).")
    return features


def _pictures(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        return x[:, None]
    if x.ndim != 4:
        raise FedSeqError(f"{path}: {key} is uint8 with {x.ndim} dimensions; pictures have 3 or 4, features are float.")
    channels_last = x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if channels_last else x
