"""Checks on files that came from elsewhere, and the optional libraries that read them."""

import importlib
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain

_LARGE = 500_000_000  # bytes up to which a file may have shrunk as much as it likes
_DENSEST = 100  # times
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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


def refuse_web_page(path: Path) -> None:
    """A failed download is often a page that says so. No data format read here starts with '<'. Nor is any a pipe."""
    try:
        with open_plain(path) as file:
            start = file.read(256)
    except OSError as error:
        raise FedSeqError(f"{path} cannot be read: {error.strerror}.") from error
    if start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"<"):
        raise FedSeqError(f"{path}: this is a web page, not data; the download probably failed. Delete it.")


def refuse_growth(path: Path, packed: int, size: int) -> None:
    """Zeros, a thousandth of their size in a file, could fill any memory. Data does not shrink to a hundredth."""
    if size > max(_LARGE, _DENSEST * packed):
        raise FedSeqError(f"{path} would grow from {packed / 1e6:.3g} MB to {size / 1e9:.3g} GB: that is no data.")


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


def array_of(path: Path, stored: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
    if key not in stored.files:
        raise FedSeqError(f"{path}: array '{key}' is missing; it has {', '.join(stored.files) or 'none'}.")
    value = stored[key]
    if not isinstance(value, np.ndarray):
        raise FedSeqError(f"{path}: '{key}' is not an array.")
    return value


def read_array(path: Path) -> np.ndarray:
    """Numbers without labels: an .npy file, or of an .npz file the array x, or the only one there is."""
    if path.suffix == ".npz":
        with opened_npz(path) as stored:
            value = array_of(path, stored, stored.files[0] if len(stored.files) == 1 else "x")
    else:
        try:
            value = np.load(path, allow_pickle=False)
        except _DAMAGE as error:
            raise FedSeqError(f"{path} is not a readable .npy file of numbers ({type(error).__name__}).") from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "uif":
        raise FedSeqError(f"{path} does not hold numbers.")
    return value


def optional(module: str, *, extra: str = "data") -> ModuleType:
    """A package that only an extra installs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(module.partition(".")[0], module.partition(".")[0])
        what = "this data" if extra == "data" else f"this {extra}"
        raise FedSeqError(f"{what} needs {package}, which is missing: pip install '.[{extra}]'") from error
