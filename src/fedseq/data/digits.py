"""The 8x8 handwritten digits that come with scikit-learn: a real data set that needs no file."""

import numpy as np

from fedseq.data.dataset import Arrays
from fedseq.seeds import generator

_TEST_PER_CLASS = 36


def read_digits() -> Arrays:
    """The split is the same in every run, whatever its seed: the same number of each class in the test set.

    Pixels 0..16 become round(value * 255 / 16), halves to even: 0 stays 0, 8 becomes 128, 16 becomes 255.
    """
    from sklearn.datasets import load_digits  # takes a second: only for those who ask for this data set

    source = load_digits()
    x = np.rint(source.images * (255 / 16)).astype(np.uint8)[:, None]
    y = source.target.astype(np.int64)
    test = _test_mask(y)
    return Arrays(x[~test], y[~test], x[test], y[test])


def _test_mask(y: np.ndarray) -> np.ndarray:
    rng = generator(0, "digits-split")
    mask = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        mask[rng.permutation(np.flatnonzero(y == label))[:_TEST_PER_CLASS]] = True
    return mask
