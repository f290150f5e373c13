"""The 8x8 handwritten digits that come with scikit-learn: a real data set that needs no file."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedseq.basics.seeds import generator
from fedseq.data.dataset import Arrays, Dataset, Progress, Wanted
from fedseq.options.datasets import CATALOG

_TEST_PER_CLASS = 36


def load(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    return Dataset(name, *read_digits(), CATALOG[name].class_names, CATALOG[name].mean, CATALOG[name].std)


def read_digits() -> Arrays:
    """The split is the same in every run, whatever its seed: the same number of each class in the test set.

    Pixels 0..16 become round(value * 255 / 16), halves to even: 0 stays 0, 8 becomes 128, 16 becomes 255.
    """
    table = _table()
    x = np.rint(table[:, :64].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    y = table[:, 64].astype(np.int64)
    test = _test_mask(y)
    return Arrays(x[~test], y[~test], x[test], y[test])


def _table() -> np.ndarray:
    """Pixels and label of each digit. Importing scikit-learn takes two seconds, reading its file a few milliseconds."""
    spec = find_spec("sklearn")
    places = [Path(place) / "datasets/data/digits.csv.gz" for place in (spec and spec.submodule_search_locations) or ()]
    for place in places:
        if place.is_file():
            return np.loadtxt(place, delimiter=",")
    from sklearn.datasets import load_digits  # a version that keeps the file elsewhere

    source = load_digits()
    return np.column_stack([source.data, source.target])


def _test_mask(y: np.ndarray) -> np.ndarray:
    rng = generator(0, "digits-split")
    mask = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        mask[rng.permutation(np.flatnonzero(y == label))[:_TEST_PER_CLASS]] = True
    return mask
