"""Checks on files that came from elsewhere, and the optional libraries that read them."""

import importlib
from pathlib import Path
from types import ModuleType

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain

_LARGE = 500_000_000  # bytes up to which a file may have shrunk as much as it likes
_DENSEST = 100  # times
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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


def optional(module: str, *, extra: str = "data") -> ModuleType:
    """A package that only an extra installs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(module.partition(".")[0], module.partition(".")[0])
        what = "this data" if extra == "data" else f"this {extra}"
        raise FedSeqError(f"{what} needs {package}, which is missing: pip install 'fedseq[{extra}]'") from error
