"""Decoded pictures, kept so that the second start is fast.

An entry is one uncompressed .npz file: it appears under its name by a single rename, so that it is whole or not there
for other processes too, and its checksums are verified when it is read. Whatever is wrong with it, it is made anew.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import cache_dir
from fedseq.data.dataset import Arrays
from fedseq.data.untrusted import array_of, opened_npz

_FORMAT = 2  # to be raised when decoding changes, so that older entries are no longer found


def download_folder(name: str) -> Path:
    return cache_dir() / "datasets" / name


def cached(
    name: str,
    files: Sequence[Path],
    build: Callable[[], Arrays],
    check: Callable[[Arrays], None],
    private: bool = False,
) -> Arrays:
    """What `build` makes of these files, from the cache if they have not changed. `check` must not refuse either.

    `private` is for a user's own data: nobody else may read the copy, whoever may read the cache.
    """
    entry = cache_dir() / "decoded" / f"{name}-{_key(name, files)}.npz"
    stored = _load(entry, check)
    if stored is not None:
        return stored
    arrays = build()
    check(arrays)
    _store(entry, arrays, private)
    return arrays


def _key(name: str, files: Sequence[Path]) -> str:
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([_FORMAT, name, states]).encode()).hexdigest()[:32]


def _load(entry: Path, check: Callable[[Arrays], None]) -> Arrays | None:
    try:
        with opened_npz(entry) as stored:
            arrays = Arrays(*(array_of(entry, stored, key) for key in Arrays._fields))
        check(arrays)
    except FedSeqError:  # absent, damaged or not what it should be: all the same, as it can be made again
        return None
    return arrays


def _store(entry: Path, arrays: Arrays, private: bool) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.parent, prefix="writing-") as scratch:
            draft = Path(scratch) / entry.name
            np.savez(draft, allow_pickle=False, **arrays._asdict())
            if private:
                draft.chmod(0o600)
            draft.replace(entry)
    except OSError as error:
        warnings.warn(f"decoded data is not kept for the next start, as {entry.parent}: {error}", stacklevel=2)
