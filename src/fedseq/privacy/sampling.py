"""Rounds whose units are drawn without replacement, by somebody who does not tell whom.

One round. N units, of which m are drawn, q = m/N; the sum of their clipped changes gets noise. Let P be the output with
a client's data and Q without. Of either, the part in which its unit is not drawn is the same, P0 = Q0: so
P = (1 - q) P0 + q P1 and Q = (1 - q) P0 + q Q1. By advanced joint convexity (Balle, Barthe and Gaboardi 2018)
delta_round(eps') = q max delta(P1 to P0 or Q1) with e^eps' = 1 + q (e^eps - 1). P1 and Q1 differ in one chain; P1 and
P0 as well (each set with the unit beside the same set with another in its place); by at most 2C: so delta on the right
is that of a Gaussian mechanism with sensitivity 2C. P and Q may change places, which makes the bound symmetric.

Many rounds. The bound for all eps, negative ones too (delta(-eps) = 1 - e^-eps + e^-eps delta(eps) of the swapped
pair), is convex in e^eps and so belongs to a pair of distributions that dominates the round (Zhu, Dong and Wang 2022);
rounds compose like that pair. Its privacy loss is put on a grid such that every delta is at least what it was, and
convolved.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedseq.privacy.gaussian import epsilon_of, least

POINTS = 1 << 16  # of the grid over which losses are convolved
NEGLIGIBLE = 1e-15  # probability of a loss beyond the grid; all of it is counted as loss without bound
LARGEST_MU = 20.0  # sensitivity over noise, above which e^loss is beyond a float
Profile = Callable[[np.ndarray], np.ndarray]  # delta of one round at each epsilon >= 0


def sampled_gaussian(share: float, mu: float) -> Profile:
    """One round by the formula above; `share` is q."""
    from scipy.special import log_ndtr, ndtr

    def profile(epsilons: np.ndarray) -> np.ndarray:
        # log(1 + (e^eps - 1) / q), in a form that large eps do not overflow
        inner = epsilons + np.log1p((share - 1) * np.exp(-epsilons)) - math.log(share)
        deltas = ndtr(mu / 2 - inner / mu) - np.exp(inner + log_ndtr(-mu / 2 - inner / mu))
        return np.asarray(share * deltas).clip(min=0.0)

    return profile


@lru_cache(maxsize=256)
def epsilon_of_rounds(share: float, mu: float, rounds: int, delta: float) -> float:
    """Never more than if everybody were drawn in every round, which is all that can be said with hardly any noise."""
    if rounds == 0:
        return 0.0
    everybody = epsilon_of(mu * math.sqrt(rounds), delta)
    if share == 1 or mu > LARGEST_MU:
        return everybody
    return min(everybody, compose(sampled_gaussian(share, mu), rounds).epsilon(delta))


@dataclass(frozen=True)
class Loss:
    """A privacy loss on a grid: the probability of each value, and of no bound at all."""

    values: np.ndarray
    probabilities: np.ndarray
    unbounded: float

    def delta(self, epsilon: float) -> float:
        beyond = self.values > epsilon
        kept = -np.expm1(epsilon - self.values[beyond])
        return self.unbounded + float(np.sum(kept * self.probabilities[beyond]))

    def epsilon(self, delta: float) -> float:
        if self.unbounded >= delta:
            return math.inf
        return least(lambda epsilon: self.delta(epsilon) <= delta, digits=1e-6)


def compose(profile: Profile, rounds: int) -> Loss:
    """The loss of so many rounds. The grid is as fine as its points allow over what the sum can reach."""
    largest = least(lambda epsilon: bool(profile(np.array(epsilon)) <= NEGLIGIBLE), digits=1e-3)
    coarse = single_loss(profile, largest, POINTS // 64)
    reach = _reach(coarse, rounds)
    step = 2 * reach / POINTS
    single = single_loss(profile, math.ceil(largest / step) * step, math.ceil(largest / step))
    if rounds == 1:
        return single
    spread = np.zeros(POINTS)
    places = np.rint(single.values / step).astype(np.int64)
    np.add.at(spread, places % POINTS, single.probabilities)
    total = np.fft.irfft(np.fft.rfft(spread) ** rounds, POINTS).clip(min=0.0)
    values = np.fft.fftshift(np.fft.fftfreq(POINTS, 1 / (POINTS * step)))
    lost = -math.expm1(rounds * math.log1p(-single.unbounded)) + NEGLIGIBLE
    return Loss(values, np.fft.fftshift(total), lost)


def single_loss(profile: Profile, largest: float, points: int) -> Loss:
    """A loss that takes these values only, and whose delta is nowhere less than the profile's, in either direction.

    Between two grid points delta is drawn as a straight line in e^eps, above the convex profile. Where the line bends
    by b, the swapped distribution has probability b, and the other e^eps b; the mirrored half follows by symmetry.
    """
    epsilons = np.linspace(0.0, largest, points + 1)
    deltas = profile(epsilons)
    slopes = np.append(np.diff(deltas) / np.diff(np.exp(epsilons)), 0.0)
    bends = np.diff(slopes).clip(min=0.0)
    above = np.exp(epsilons[1:]) * bends
    unbounded = float(deltas[-1])
    at_0 = max(0.0, 1.0 - unbounded - float(above.sum() + bends.sum()))
    values = np.concatenate([-epsilons[:0:-1], epsilons])
    return Loss(values, np.concatenate([bends[::-1], [at_0], above]), unbounded)


def _reach(loss: Loss, rounds: int) -> float:
    """What the sum of so many losses leaves, to either side, with a negligible probability (Chernoff)."""
    logs = np.log(loss.probabilities.clip(min=1e-300))
    widest = rounds * float(loss.values[-1])
    reach = float(loss.values[-1])
    for sign in (1, -1):
        ways = [widest]
        for tilt in np.geomspace(0.01, 100.0, 60):
            exponents = logs + sign * tilt * loss.values
            top = float(exponents.max())
            moment = top + math.log(float(np.exp(exponents - top).sum()))
            ways.append((rounds * moment - math.log(NEGLIGIBLE / 2)) / float(tilt))
        reach = max(reach, min(ways))
    return reach
