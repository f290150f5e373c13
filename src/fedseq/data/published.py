"""Finds and reads the data sets of the catalog that come in files."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.data.cache import cached, download_folder
from fedseq.data.dataset import Dataset, Progress, Wanted, check_against
from fedseq.data.source import Source
from fedseq.options.datasets import CATALOG
from fedseq.options.tables import Row


def load(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    facts, source = CATALOG[name], _find_source(name, _folders(name, data_dir))
    check = partial(check_against, facts, source.where)
    arrays = cached(name, source.files, partial(source.read, progress), check)
    return Dataset(name, *arrays, facts.class_names, facts.mean, facts.std)


def _folders(name: str, data_dir: Path | None) -> list[Path]:
    if data_dir is not None:
        if not data_dir.is_dir():
            raise FedSeqError(f"the data folder {data_dir} does not exist. Give another one with --data-dir.")
        return [data_dir, data_dir / name]
    variable = os.environ.get("FEDSEQ_DATA")
    chosen = [Path(variable).expanduser() / name] if variable else []
    system = [Path(CATALOG[name].system_folder)] if CATALOG[name].system_folder else []
    return [*chosen, download_folder(name), *system]


def _find_source(name: str, folders: list[Path]) -> Source:
    """The first complete one: half a download must not hide the whole data set in the next folder."""
    find: Callable[[str, Path], Iterator[Source]] = Row(CATALOG[name].finder).load()
    sources = [source for folder in folders for source in find(name, folder)]
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
        f"or {CATALOG[name].other_forms}.",
    ]
    return FedSeqError("\n".join(lines))
