"""Checks on files that came from elsewhere, and the optional libraries that read them."""

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

from fedseq.errors import FedSeqError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def refuse_web_page(path: Path) -> None:
    """A failed download is often a page that says so. No data format read here starts with '<'."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError as error:
        raise FedSeqError(f"{path} cannot be read: {error.strerror}.") from error
    if start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"<"):
        raise FedSeqError(f"{path}: this is a web page, not data; the download probably failed. Delete it.")


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def optional(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(module.partition(".")[0], module.partition(".")[0])
        raise FedSeqError(f"this data needs {package}, which is missing: pip install 'fedseq[data]'") from error
