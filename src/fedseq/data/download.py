"""Fetches published files: several mirrors in turn, digests checked."""

import contextlib
import hashlib
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.data.cache import download_folder
from fedseq.data.dataset import Progress, silent
from fedseq.options.datasets import CATALOG, Download, check_dataset_name

_TIMEOUT = 30.0  # seconds without any byte
_CHUNK = 2**18


def get_dataset(name: str, folder: Path | None = None, progress: Progress = silent) -> Path:
    """Downloads the files of a data set and returns the folder they are in."""
    check_dataset_name(name)
    downloads = CATALOG[name].downloads if name in CATALOG else ()
    if not downloads:
        reason = CATALOG[name].title if name in CATALOG else "it is read from your own files"
        raise FedSeqError(f"nothing has to be downloaded for {name}: {reason}.")
    folder = folder or download_folder(name)
    download(downloads, folder, progress)
    return folder


def download(downloads: Sequence[Download], folder: Path, progress: Progress = silent) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedSeqError(f"the folder {folder} cannot be made: {error.strerror}.") from error
    for number, item in enumerate(downloads):
        if not _is_right(folder / item.filename, item):
            _fetch(item, downloads[number:], folder, progress)


def _fetch(item: Download, outstanding: Sequence[Download], folder: Path, progress: Progress) -> None:
    part, reasons = folder / f"{item.filename}.part", []
    for url in item.urls:
        try:
            _transfer(url, item, part, progress)
        except (ValueError, OSError, HTTPException) as error:
            reasons.append(f"  {url}: {error}")
        else:
            part.replace(folder / item.filename)
            return
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
    wanted = [f"  {other.filename}  MD5 {other.md5}" for other in outstanding]
    by_hand = f"Get the files in another way and put them in {folder}:"
    raise FedSeqError("\n".join([f"{item.filename} could not be downloaded:", *reasons, by_hand, *wanted]))


def _transfer(url: str, item: Download, part: Path, progress: Progress) -> None:
    """Raises ValueError for an answer that is another file."""
    request, done = urllib.request.Request(url, headers={"User-Agent": f"fedseq/{__version__}"}), 0
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response, part.open("wb") as file:
        if response.headers.get_content_type() == "text/html":
            raise ValueError("it sent a web page, not data")
        length = response.headers.get("Content-Length")
        if length not in (None, str(item.size)):
            raise ValueError(f"it offers {length} bytes instead of {item.size}")
        # One byte too many is enough to know that it is another file.
        while chunk := response.read(min(_CHUNK, item.size + 1 - done)):
            file.write(chunk)
            done += len(chunk)
            progress(min(done, item.size), item.size, item.filename)
    if done < item.size:
        raise ValueError(f"the connection ended after {done} of {item.size} bytes")
    if not _is_right(part, item):
        raise ValueError(f"the file has not the MD5 digest {item.md5}")


def _is_right(path: Path, item: Download) -> bool:
    if not path.is_file() or path.stat().st_size != item.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == item.md5
