"""Fetches published files: several mirrors in turn, interrupted transfers resumed, digests checked."""

import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.data.cache import download_folder
from fedseq.data.dataset import Progress, silent
from fedseq.data.guard import md5
from fedseq.options.datasets import CATALOG, Download, check_dataset_name

_TIMEOUT = 30.0  # seconds without any byte
_CHUNK = 2**18


class _MirrorError(Exception):
    """Why one mirror did not do; the next one is tried."""


def get_dataset(name: str, folder: Path | None = None, progress: Progress = silent) -> Path:
    """Downloads the files of a data set and returns the folder they are in."""
    check_dataset_name(name)
    downloads = CATALOG[name].downloads if name in CATALOG else ()
    if not downloads:
        reason = "it is read from your own files"
        if name in CATALOG:
            reason = CATALOG[name].title if CATALOG[name].reader else "it comes with scikit-learn"
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
    part = folder / f"{item.filename}.part"
    reasons = []
    for url in item.urls:
        try:
            _fetch_from(url, item, part, progress)
        except (_MirrorError, OSError, HTTPException) as error:
            reasons.append(f"  {url}: {error}")
        else:
            part.replace(folder / item.filename)
            return
    wanted = [f"  {other.filename}  MD5 {other.md5}" for other in outstanding]
    by_hand = f"Get the files in another way and put them in {folder}:"
    raise FedSeqError("\n".join([f"{item.filename} could not be downloaded:", *reasons, by_hand, *wanted]))


def _fetch_from(url: str, item: Download, part: Path, progress: Progress) -> None:
    resumed = _size(part) > 0
    if _size(part) < item.size:
        _transfer(url, item, part, progress)
    if _size(part) < item.size:
        raise _MirrorError(f"the connection ended after {_size(part)} of {item.size} bytes")
    if _is_right(part, item):
        return
    part.unlink()
    if not resumed:
        raise _MirrorError(f"the file has not the MD5 digest {item.md5}")
    _fetch_from(url, item, part, progress)  # what was there before may be to blame, not this mirror


def _transfer(url: str, item: Download, part: Path, progress: Progress) -> None:
    offset = _size(part)
    headers = {"User-Agent": f"fedseq/{__version__}"} | ({"Range": f"bytes={offset}-"} if offset else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as response:
        offset = _accepted_offset(response, offset, item.size)
        with part.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            # One byte too many is enough to know that it is another file.
            while chunk := response.read(min(_CHUNK, item.size + 1 - offset)):
                file.write(chunk)
                offset += len(chunk)
                progress(min(offset, item.size), item.size, item.filename)


def _accepted_offset(response: HTTPResponse, offset: int, size: int) -> int:
    """Where the answer starts; refuses an answer that is another file, before it spoils what was fetched so far."""
    if response.headers.get_content_type() == "text/html":
        raise _MirrorError("it sent a web page, not data")
    start = offset if response.status == 206 else 0
    if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise _MirrorError("it sent another part than the one asked for")
    length = response.headers.get("Content-Length")
    if length is not None and length != str(size - start):
        raise _MirrorError(f"it offers {length} bytes instead of {size - start}")
    return start


def _is_right(path: Path, item: Download) -> bool:
    return _size(path) == item.size and md5(path) == item.md5


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
