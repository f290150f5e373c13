"""Data sets as numpy arrays, whatever form they come in."""

from pathlib import Path

from fedseq.catalog import CATALOG, check_dataset_name
from fedseq.data.class_names import CLASS_NAMES
from fedseq.data.dataset import Dataset, Progress, silent
from fedseq.data.digits import read_digits
from fedseq.data.folder import load_folder
from fedseq.data.labelled import Labelled, check_labelled_name, load_labelled
from fedseq.data.npz import load_npz
from fedseq.data.published import read_published

__all__ = [
    "Dataset",
    "Labelled",
    "Progress",
    "check_dataset_name",
    "check_labelled_name",
    "load_dataset",
    "load_labelled",
]

_OWN_FILES = {"npz": load_npz, "folder": load_folder}


def load_dataset(name: str, data_dir: Path | None = None, progress: Progress = silent) -> Dataset:
    """Reads a data set of the catalog, or one's own files as `npz:FILE` or `folder:DIR`.

    `progress` is called with what is done, the total and a few words, often enough to move a bar.
    """
    check_dataset_name(name)
    kind, _, path = name.partition(":")
    if kind in _OWN_FILES:
        return _OWN_FILES[kind](name, Path(path).expanduser(), progress)
    facts = CATALOG[name]
    arrays = read_digits() if name == "digits" else read_published(name, data_dir, progress)
    return Dataset(name, *arrays, CLASS_NAMES[name], facts.mean, facts.std)
