"""The method `greedy` (paper Algorithm 3): the next client of a group is the one that complements it best.

Deviations: the group's estimate is the example-weighted mean of its members, the paper's running half-half average is
the option `half`; every pick is a plain argmax, where the authors' code starts its search at score 0 and so takes the
first client when all scores are negative, as they are for `kl`.
"""

from collections.abc import Iterable

import numpy as np

from fedseq.grouping.limits import Groups, Limits, deal_out_last
from fedseq.grouping.metrics import Metric
from fedseq.grouping.screen import KlScreen
from fedseq.options.tables import METRICS

TIE = 1e-12  # scores this close, relative to the best, differ by rounding only: the lowest client number decides
SCREEN_FROM = 4096  # clients; with fewer, scoring everyone is faster than the screen


class _Pool:
    """The clients that are in no group yet, in the first `count` columns.

    They stay packed, so that a pick does not scan the clients already taken: the last one fills the gap.
    """

    def __init__(self, estimates: np.ndarray, weights: np.ndarray, metric: str) -> None:
        self.count = len(weights)
        self.client = np.arange(self.count)
        self.column = np.arange(self.count)  # the inverse: where a client is
        self.estimate = np.array(estimates.T, order="C")
        self.weight = weights.copy()
        self.metric: Metric = METRICS.row(metric).load()
        screened = metric == "kl" and self.count > SCREEN_FROM
        self.screen = KlScreen(self.estimate, weights) if screened else None

    def remove(self, client: int) -> None:
        self.count -= 1
        gap, last = self.column[client], self.count
        for array in (self.client, self.estimate, self.weight):
            array[..., gap] = array[..., last]
        self.column[self.client[gap]] = gap
        if self.screen is not None:
            self.screen.move(last, gap)

    def best(self, mean: np.ndarray, weight: float) -> int:
        """The client to join a group with this mean estimate and weight."""
        columns = slice(self.count) if self.screen is None else self.screen.shortlist(mean, weight, self.count)
        scores = self.metric(mean, self.estimate[:, columns], _share(self.weight[columns], weight))
        top = scores.max()
        return int(self.client[columns][scores >= top - TIE * max(1.0, abs(top))].min())


def pick_groups(
    estimates: np.ndarray, sizes: np.ndarray, limits: Limits, firsts: Iterable[int], metric: str, half: bool = False
) -> Groups:
    """Every group starts with the next of `firsts`, an order of all clients, that is in no group yet."""
    weights = np.ones(len(sizes)) if half else sizes.astype(float)
    pool = _Pool(estimates, weights, metric)
    free = np.ones(len(sizes), dtype=bool)
    groups: Groups = []
    for first in firsts:
        if free[first]:
            groups.append(_pick_group(int(first), pool, estimates, weights, sizes, limits, half))
            free[groups[-1]] = False
    return deal_out_last(groups, sizes, limits)


def _pick_group(
    first: int,
    pool: _Pool,
    estimates: np.ndarray,
    weights: np.ndarray,
    sizes: np.ndarray,
    limits: Limits,
    half: bool,
) -> list[int]:
    pool.remove(first)
    group, examples = [first], int(sizes[first])
    mean, weight = estimates[first], weights[first]
    while pool.count and not limits.full(examples, len(group)):
        client = pool.best(mean, weight)
        pool.remove(client)
        mean = mean + _share(weights[client], weight) * (estimates[client] - mean)
        weight = weight if half else weight + weights[client]
        group.append(client)
        examples += int(sizes[client])
    return group


def _share(joining: np.ndarray, present: float) -> np.ndarray:
    """The part of the mix that a joining client makes up; nothing if neither it nor the group has examples."""
    return joining / np.maximum(present + joining, 1.0)
