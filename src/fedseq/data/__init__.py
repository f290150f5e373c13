"""Data sets as numpy arrays, whatever form they come in."""

from collections.abc import Callable
from pathlib import Path

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.data.columns import ClassNames, Labelled, to_dataset, to_labelled
from fedseq.data.dataset import NOTHING_MORE, Dataset, Progress, Wanted, silent
from fedseq.data.own_files import FILES, LABELLED_FILES
from fedseq.options.datasets import CATALOG, LABELLED_SOURCES, check_dataset_name
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


def load_dataset(
    name: str, data_dir: Path | None = None, progress: Progress = silent, wanted: Wanted = NOTHING_MORE
) -> Dataset:
    """Reads a data set of the catalog, or one's own files as `npz:FILE`, `folder:DIR`, `csv:FILE` or `parquet:FILE`.

    What has no test set of its own comes with an empty one. `progress` is called with what is done, the total and a few
    words, often enough to move a bar.
    """
    check_dataset_name(name)
    kind, _, path = name.partition(":")
    if kind in FILES:
        return to_dataset(name, FILES[kind](_expanded(path), wanted, progress), wanted)
    read: Callable[..., Dataset] = Row(CATALOG[name].reader).load()
    return read(name, data_dir, wanted, progress)


def check_labelled_name(source: str) -> None:
    """Cheap enough to be called before anything else is done."""
    kind, _, path = source.partition(":")
    if kind not in LABELLED_FILES or not path:
        raise unknown("set of examples", source, LABELLED_SOURCES)


def load_labelled(source: str, class_names: ClassNames | None = None, features: str = "float32") -> Labelled:
    """Reads one set, with features of this type.

    `class_names` are those that the server names; without them, the set itself says what they are. A client is told
    them, since it may lack some: its folders are looked up among them, and its numbers count from the first.
    """
    check_labelled_name(source)
    kind, _, place = source.partition(":")
    try:
        return to_labelled(LABELLED_FILES[kind](_expanded(place), class_names), class_names, features)
    except (OSError, MemoryError) as error:  # what the readers do not foresee, such as a folder without permission
        raise FedSeqError(f"{place} cannot be read: {str(error) or 'it does not fit into memory'}.") from error


def _expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        raise FedSeqError(f"{place}: no such user's home is known here. Write out the whole path.") from error
