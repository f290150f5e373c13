"""The approximators psi of a grouping criterion (paper section III-A): what a pre-trained model tells about its data.

They work on numbers, not on models: on the logits for the public exemplars, or on the flattened weights of fully
connected layers. A client whose model diverged gets an estimate of NaNs, which the grouping treats as unknown.

`confidence` follows the paper's formula with logits as predictions: the softmax of mean *probabilities* would be
nearly flat. `official_confidence` is what the authors' code computes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from fedseq.basics.errors import FedSeqError

VARIANCE_KEPT = 0.9
ELEMENTS_AT_ONCE = 2**22  # of the weights, in double precision: 32 MiB


@dataclass(frozen=True)
class Reduction:
    """Weights after PCA. A figure of the paper shows `kept` over `possible`, and over `weights`."""

    vectors: np.ndarray  # [clients, kept]
    kept: int
    possible: int  # components: clients - 1
    weights: int  # per client


def confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[..., exemplars, classes] to [..., classes]: softmax of each class's mean true-class logit."""
    counts = _exemplars_per_class(labels, logits.shape[-1])
    return _softmax(_true_class_sums(_finite_or_nan(logits), labels) / counts)


def official_confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each class's sum of true-class probabilities, divided by the sum over classes."""
    _exemplars_per_class(labels, logits.shape[-1])
    sums = _true_class_sums(_softmax(_finite_or_nan(logits)), labels)
    totals = sums.sum(axis=-1, keepdims=True)
    return sums / np.where(totals > 0, totals, np.nan)


CONFIDENCES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "paper": confidence,
    "official": official_confidence,
}


def reduce_weights(rows: np.ndarray, variance: float = VARIANCE_KEPT) -> Reduction:
    """PCA of one row of weights per client, keeping the given part of the variance.

    There are far more weights than clients, so the components come from the clients' Gram matrix: with the centred
    rows = U S V^T, its eigenvectors are U and its eigenvalues S^2, and the reduced vectors are U S. The rows are read
    in chunks of columns and nothing of the size of weights x weights is made. The sign of a component is arbitrary;
    ours makes its largest entry positive.
    """
    finite = _finite_rows(rows)
    vectors = np.full((len(rows), 1), np.nan)
    if finite.any():
        with threadpool_limits(1):  # the same numbers, to the last bit, on any number of cores
            reduced = _principal_components(rows, finite, variance)
        vectors = np.full((len(rows), reduced.shape[1]), np.nan)
        vectors[finite] = reduced
    return Reduction(vectors, kept=vectors.shape[1], possible=len(rows) - 1, weights=rows.shape[1])


def _principal_components(rows: np.ndarray, finite: np.ndarray, variance: float) -> np.ndarray:
    gram = _centred_gram(rows, finite)
    if not gram.any():  # equal rows: the mean of equal single precision numbers is exact
        return np.zeros((len(gram), 1))
    eigenvalues, eigenvectors = np.linalg.eigh(gram)
    eigenvalues, eigenvectors = np.maximum(eigenvalues[::-1], 0.0), eigenvectors[:, ::-1]
    explained = eigenvalues.cumsum() / eigenvalues.sum()
    kept = min(int(np.searchsorted(explained, variance, side="right")) + 1, len(gram))
    components = eigenvectors[:, :kept] * np.sqrt(eigenvalues[:kept])
    largest = np.abs(components).argmax(axis=0)
    return components * np.where(components[largest, np.arange(kept)] < 0, -1.0, 1.0)


def _centred_gram(rows: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """Of the finite rows less their mean."""
    gram = np.zeros((finite.sum(), finite.sum()))
    for columns in _chunks(rows):
        block = rows[finite, columns].astype(np.float64)
        block -= block.mean(axis=0)
        gram += block @ block.T
    return gram


def _finite_rows(rows: np.ndarray) -> np.ndarray:
    finite = np.ones(len(rows), dtype=bool)
    for columns in _chunks(rows):
        finite &= np.isfinite(rows[:, columns]).all(axis=1)
    return finite


def _chunks(rows: np.ndarray) -> Iterator[slice]:
    step = max(1, ELEMENTS_AT_ONCE // max(len(rows), 1))
    return (slice(start, start + step) for start in range(0, rows.shape[1], step))


def _exemplars_per_class(labels: np.ndarray, classes: int) -> np.ndarray:
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        missing = ", ".join(map(str, np.flatnonzero(counts == 0)))
        raise FedSeqError(
            f"the public exemplars hold no example of class {missing}, so nothing is known about it. "
            "Take at least one exemplar of every class, or use a classifier approximator."
        )
    return counts


def _true_class_sums(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    true_class = values[..., np.arange(len(labels)), labels]
    return true_class @ (labels[:, None] == np.arange(values.shape[-1])).astype(float)


def _finite_or_nan(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def _softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
