"""Data sets as numpy arrays, whatever form they come in."""

from collections.abc import Callable
from pathlib import Path

from fedseq.data.dataset import NOTHING_MORE, Dataset, Progress, Wanted, silent
from fedseq.data.folder import load_folder
from fedseq.data.labelled import Labelled, check_labelled_name, expanded, load_labelled
from fedseq.data.npz import load_npz
from fedseq.data.table import load_csv, load_parquet
from fedseq.options.datasets import CATALOG, check_dataset_name
from fedseq.options.tables import Row

__all__ = [
    "Dataset",
    "Labelled",
    "Progress",
    "check_dataset_name",
    "check_labelled_name",
    "load_dataset",
    "load_labelled",
]

_OWN_FILES = {"npz": load_npz, "folder": load_folder, "csv": load_csv, "parquet": load_parquet}


def load_dataset(
    name: str, data_dir: Path | None = None, progress: Progress = silent, wanted: Wanted = NOTHING_MORE
) -> Dataset:
    """Reads a data set of the catalog, or one's own files as `npz:FILE`, `folder:DIR`, `csv:FILE` or `parquet:FILE`.

    What has no test set of its own comes with an empty one. `progress` is called with what is done, the total and a few
    words, often enough to move a bar.
    """
    check_dataset_name(name)
    kind, _, path = name.partition(":")
    if kind in _OWN_FILES:
        return _OWN_FILES[kind](name, expanded(path), wanted, progress)
    read: Callable[..., Dataset] = Row(CATALOG[name].reader).load()
    return read(name, data_dir, wanted, progress)
