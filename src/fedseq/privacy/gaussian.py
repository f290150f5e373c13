"""The Gaussian mechanism, exactly (Balle and Wang 2018).

What is told apart are N(0, 1) and N(mu, 1), where mu is the sensitivity over the noise. Several releases of one person
compose into one with mu = sqrt(mu_1^2 + mu_2^2 + ...) (Dong, Roth and Su 2019): nothing is lost in the sum.
"""

import math
from collections.abc import Callable


def delta_of(epsilon: float, mu: float) -> float:
    """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)"""
    if mu == 0:
        return 0.0
    ahead, behind = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return max(0.0, upper_tail(ahead) - math.exp(min(epsilon + log_upper_tail(behind), 0.0)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon at this delta; inf without noise."""
    if math.isinf(mu):
        return math.inf
    return least(lambda epsilon: delta_of(epsilon, mu) <= delta)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu that keeps to this epsilon: the inverse of `epsilon_of`."""
    return 1 / least(lambda noise: noise > 0 and delta_of(epsilon, 1 / noise) <= delta)


def least(holds: Callable[[float], bool], digits: float = 1e-9) -> float:
    """The smallest x >= 0 from which on `holds` is true; never less than it."""
    low, high = 0.0, 1.0
    if holds(0.0):
        return 0.0
    while not holds(high):
        low, high = high, 2 * high
    while high - low > digits * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def upper_tail(x: float) -> float:
    """P(N(0, 1) > x)"""
    return math.erfc(x / math.sqrt(2)) / 2


def log_upper_tail(x: float) -> float:
    """Its logarithm, also where it is too small for a float."""
    if x < 25:
        return math.log(upper_tail(x))
    return -x * x / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log1p(-1 / x**2 + 3 / x**4)
