"""Finds and reads the data sets of the catalog that come in files."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fedseq.catalog import CATALOG
from fedseq.data import cifar, idx
from fedseq.data.cache import cached, download_folder
from fedseq.data.dataset import Arrays, Progress, check_against
from fedseq.data.source import Source
from fedseq.errors import FedSeqError

_FINDERS: dict[str, Callable[[str, Path], Iterator[Source]]] = {
    "fashion-mnist": idx.find,
    "cifar10": cifar.find,
    "cifar100": cifar.find,
}
_SYSTEM_FOLDERS = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}  # Debian's dataset-fashion-mnist
_OTHER_FORMS = {
    "fashion-mnist": "the same files unzipped",
    "cifar10": "the extracted folder cifar-10-batches-py, or train*.parquet and test*.parquet from Hugging Face",
    "cifar100": "the extracted folder cifar-100-python, or train*.parquet and test*.parquet from Hugging Face",
}


def read_published(name: str, data_dir: Path | None, progress: Progress) -> Arrays:
    source = _find_source(name, _folders(name, data_dir))
    check = partial(check_against, CATALOG[name], source.where)
    return cached(name, source.files, partial(source.read, progress), check)


def _folders(name: str, data_dir: Path | None) -> list[Path]:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedSeqError(f"the data folder {data_dir} does not exist. Give another one with --data-dir.")
        return [data_dir, data_dir / name]
    variable = os.environ.get("FEDSEQ_DATA")
    chosen = [Path(variable).expanduser() / name] if variable else []
    system = [_SYSTEM_FOLDERS[name]] if name in _SYSTEM_FOLDERS else []
    return [*chosen, download_folder(name), *system]


def _find_source(name: str, folders: list[Path]) -> Source:
    """The first complete one: half a download must not hide the whole data set in the next folder."""
    sources = [source for folder in folders for source in _FINDERS[name](name, folder)]
    for source in sources:
        if not source.missing:
            return source
    raise _not_found(name, folders, sources)


def _not_found(name: str, folders: list[Path], incomplete: list[Source]) -> FedSeqError:
    gaps = [f"{source.where} lacks {', '.join(file.name for file in source.missing)}." for source in incomplete]
    official = ", ".join(f"{item.filename} (MD5 {item.md5})" for item in CATALOG[name].downloads)
    lines = [
        f"no {name} data in {' or '.join(map(str, folders))}.",
        *gaps,
        f"Run `fedseq data get {name}`, or name a folder with --data-dir and put in it: {official};",
        f"or {_OTHER_FORMS[name]}.",
    ]
    return FedSeqError("\n".join(lines))
