"""A fast way to see which clients cannot be the best by `kl`, so that few have to be scored exactly.

Let phi(x) = x log x and let the group hold the mass g_c of class c. A client that brings the masses a_c makes a mix
whose entropy is log T - sum_c phi(g_c + a_c) / T, with T the sum of all masses. As a function of a, phi(g + a) is for
any g >= 0 close to a combination of four functions of the same family, phi(s + a) with fixed shifts s. These are
computed once for all clients; then a pick needs four coefficients per class and one matrix-vector product, instead of
a logarithm per client and class. The error of the combination is measured on a fine grid, and every client within
twice this error of the best stays on the list.
"""

import numpy as np

from fedseq.grouping.metrics import x_log_x

SHIFTS = np.array([0.002, 0.03, 0.3, 4.0])  # in units of the largest mass; they fit g from 0 to 10 within 0.002
GRID = np.linspace(0.0, 1.0, 65) ** 3  # finer where phi bends most
CAUTION = 1.2  # for what may happen between the points of the grid


class KlScreen:
    """One row of single precision features per client. The rows are the caller's columns, in the same order."""

    def __init__(self, estimates: np.ndarray, weights: np.ndarray) -> None:
        masses = (estimates * weights).T
        self.unit = max(masses.max(), np.finfo(float).tiny)
        self.features = _family(masses / self.unit).astype(np.float32).reshape(len(masses), -1)
        # Equal weights, the usual case, need one total instead of one per client.
        distinct = weights[:1] if (weights == weights[0]).all() else weights
        self.weights = (distinct / self.unit).astype(np.float32)

    def move(self, source: int, target: int) -> None:
        self.features[target] = self.features[source]
        if len(self.weights) > 1:
            self.weights[target] = self.weights[source]

    def shortlist(self, mean: np.ndarray, weight: float, count: int) -> np.ndarray:
        """Some of the first `count` rows, among them every one with the largest entropy of the mix."""
        if weight == 0:  # the first client with examples decides the mix alone, and without one there is no mix
            return np.arange(count)
        masses = mean * (weight / self.unit)
        totals = self.weights[:count] + np.float32(weight / self.unit)
        coefficients, error = _fit(masses)
        entropies = self.features[:count] @ coefficients.astype(np.float32).ravel()
        entropies += np.float32(x_log_x(masses).sum())
        entropies /= -totals
        entropies += np.log(totals)
        return np.flatnonzero(entropies >= entropies.max() - 2 * error / totals.min())


def _family(masses: np.ndarray) -> np.ndarray:
    """phi(s + a) - phi(s) for every shift s along a new last axis: 0 where a is 0, as most masses nearly are."""
    return x_log_x(masses[..., None] + SHIFTS) - x_log_x(SHIFTS)


_BASIS = _family(GRID).T
_PROJECTION = np.linalg.pinv(_BASIS)


def _fit(masses: np.ndarray) -> tuple[np.ndarray, float]:
    """Coefficients [classes, shifts] for phi(g + a) - phi(g), and a bound on the error of their sum over classes."""
    wanted = x_log_x(masses[:, None] + GRID) - x_log_x(masses)[:, None]
    coefficients = wanted @ _PROJECTION
    error = CAUTION * np.abs(coefficients @ _BASIS - wanted).max(axis=1).sum()
    rounding = 8 * np.finfo(np.float32).eps * (np.abs(coefficients) @ np.abs(_BASIS).max(axis=1)).sum()
    return coefficients, float(error + rounding)
