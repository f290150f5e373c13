"""A lower bound on epsilon from one run (Steinke, Nasr and Jagielski 2023).

Many canaries, each in or out by a fair coin; an attacker guesses which, of as many as it dares. If every canary is
(epsilon, delta) private, no attacker is right more often than a coin that falls e^epsilon to 1, but for delta. An
attacker that is right too often for an epsilon refutes it.
"""

from collections.abc import Sequence

import numpy as np

from fedseq.privacy.gaussian import least

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of the canaries that are guessed, the surest first


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The probability of so many right guesses or more, at most, if epsilon were true."""
    from scipy.stats import binom

    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    slack = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * slack)


def lower_bound(scores: Sequence[float], present: Sequence[bool], delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that is refuted: a canary is guessed to be in if its score is above 0, sure if far from it.

    How many are guessed is not chosen by the outcome: every share is tried, and pays for the others.
    """
    order = np.argsort(-np.abs(np.asarray(scores)), kind="stable")
    right = (np.asarray(scores) > 0)[order] == np.asarray(present)[order]
    level = (1 - confidence) / len(SHARES)
    bounds = [0.0]
    for share in SHARES:
        guesses = max(1, int(share * len(order)))
        hits = int(right[:guesses].sum())
        found = least(lambda eps: eps > 50 or p_value(hits, guesses, len(order), eps, delta) > level, digits=1e-3)  # noqa: B023
        bounds.append(found)
    return max(bounds)
