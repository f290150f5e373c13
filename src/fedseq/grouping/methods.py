"""The methods phi of a grouping criterion (paper section III-A): from estimates to groups of clients.

`random`, `kmeans` and `greedy` are the paper's, `exchange` is ours. In all of them a group is full at so many examples
or clients. The paper leaves the last group as it comes; ours, if short of examples, is dealt out to the groups with
the fewest.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from fedseq.grouping.metrics import Metric
from fedseq.options.tables import METRICS

Groups = list[list[int]]


@dataclass(frozen=True)
class Limits:
    """A group takes clients until it holds `min_samples` examples or `max_clients` clients."""

    min_samples: int
    max_clients: int

    def full(self, examples: int, clients: int) -> bool:
        return examples >= self.min_samples or clients >= self.max_clients


def cut(order: Iterable[int], sizes: np.ndarray, limits: Limits) -> Groups:
    """Fill one group after the other with the clients in the given order."""
    groups: Groups = []
    group: list[int] = []
    for client in order:
        group.append(int(client))
        if limits.full(sizes[group].sum(), len(group)):
            groups.append(group)
            group = []
    return deal_out_last([*groups, group] if group else groups, sizes, limits)


def deal_out_last(groups: Groups, sizes: np.ndarray, limits: Limits) -> Groups:
    """Give the clients of a last group that is short, in turn, to the group with the fewest examples and a free place.

    Ties go to the group made first. Clients for whom no group has a place stay behind as a short group.
    """
    if len(groups) < 2 or sizes[groups[-1]].sum() >= limits.min_samples:
        return groups
    *others, last = groups
    examples = [int(sizes[group].sum()) for group in others]
    for turn, client in enumerate(last):
        open_groups = [index for index, group in enumerate(others) if len(group) < limits.max_clients]
        if not open_groups:
            return [*others, last[turn:]]
        smallest = min(open_groups, key=examples.__getitem__)
        others[smallest] = [*others[smallest], client]
        examples[smallest] += int(sizes[client])
    return others


def short_groups(groups: Iterable[Iterable[int]], sizes: np.ndarray, limits: Limits) -> tuple[int, ...]:
    return tuple(i for i, group in enumerate(groups) if sizes[list(group)].sum() < limits.min_samples)


@dataclass(frozen=True)
class Problem:
    """All that a method knows. The estimates are finite."""

    estimates: np.ndarray  # [clients, classes or components]
    sizes: np.ndarray  # examples per client
    limits: Limits
    metric: str | None
    half: bool  # group estimates are the paper's running half-half average
    num_classes: int


def random(problem: Problem, rng: np.random.Generator) -> Groups:
    return cut(rng.permutation(len(problem.sizes)), problem.sizes, problem.limits)


def kmeans(problem: Problem, rng: np.random.Generator) -> Groups:
    """Paper Algorithm 2: a random member of each cluster in turn. A cluster that has run out is skipped."""
    order = deal(_clusters(problem.estimates, problem.num_classes, rng), rng)
    return cut(order, problem.sizes, problem.limits)


def greedy(problem: Problem, rng: np.random.Generator) -> Groups:
    assert problem.metric is not None  # the criterion has been checked
    firsts = rng.permutation(len(problem.sizes))
    return pick_groups(problem.estimates, problem.sizes, problem.limits, firsts, problem.metric, problem.half)


def exchange(problem: Problem, rng: np.random.Generator) -> Groups:
    """Starts from the groups of `greedy` if there is a metric, else from those of `random`."""
    begin = greedy if problem.metric else random
    return improve(begin(problem, rng), problem.estimates, problem.sizes, problem.limits)


def deal(clusters: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The clients in the order in which they are taken from their clusters, one from each in turn."""
    turn = np.empty(len(clusters), dtype=int)
    for cluster in np.unique(clusters):
        members = np.flatnonzero(clusters == cluster)
        turn[members] = rng.permutation(len(members))
    return np.lexsort((clusters, turn))


def _clusters(estimates: np.ndarray, num_classes: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.cluster import KMeans  # takes a second to import

    count = min(num_classes, len(np.unique(estimates, axis=0)))
    model = KMeans(count, n_init=10, random_state=int(rng.integers(2**31)))
    return model.fit_predict(estimates)


# --- greedy ----------------------------------------------------------------------------------------------------------
#
# Paper Algorithm 3: the next client of a group is the one that complements it best. Two deviations: the group's
# estimate is the example-weighted mean of its members (the paper's running half-half average is the option `half`); and
# every pick is a plain argmax, while the authors' code starts its search at score 0 and so takes the first client when
# all scores are negative, as they are for `kl`.

TIE = 1e-12  # scores this close, relative to the best, differ by rounding only: the lowest client number decides


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

    def remove(self, client: int) -> None:
        self.count -= 1
        gap, last = self.column[client], self.count
        for array in (self.client, self.estimate, self.weight):
            array[..., gap] = array[..., last]
        self.column[self.client[gap]] = gap

    def best(self, mean: np.ndarray, weight: float) -> int:
        """The client to join a group with this mean estimate and weight."""
        free = slice(self.count)
        scores = self.metric(mean, self.estimate[:, free], _share(self.weight[free], weight))
        top = scores.max()
        return int(self.client[free][scores >= top - TIE * max(1.0, abs(top))].min())


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


# --- exchange --------------------------------------------------------------------------------------------------------
#
# Swap clients between superclients until no swap makes their mixes more alike.
#
# Minimises sum over superclients S of n_S * ||mean estimate of S - target||^2, which is anticlustering: every group is
# to look like the whole. The target, uniform for probability vectors and the overall mean otherwise, need not be known:
# with m the overall example-weighted mean and n all examples,
#
#     sum_S n_S ||m_S - target||^2  =  sum_S n_S ||m_S - m||^2  +  n ||m - target||^2,
#
# and no swap changes the last term. With x_k = n_k (estimate of k - m) and X_S the sum of x_k over S, what is left to
# minimise is sum_S ||X_S||^2 / n_S. No label is ever looked at.
#
# Groups meet in pairs as in a round-robin tournament. The pairs of one round have no group in common, so the best swaps
# of all pairs are found in one vectorised step and are made at once.

MAX_ROUNDS = 300  # 500 clients are then within 3 % of a local optimum of all swaps
PAIRS_AT_ONCE = 256  # keeps the arrays of a step in the processor's cache
TOLERANCE = 1e-9  # part of the pair's scatter that a swap must save: above rounding, so that the search ends


@dataclass(frozen=True)
class _Seats:
    """Who sits where, shapes [groups, seats, ...]. Smaller groups have empty seats: client -1, all zeros.

    Swapping a client with an empty seat moves it to the other group. There are as many seats as the largest group had
    clients, so that keeps the limits too.
    """

    client: np.ndarray
    vector: np.ndarray  # x_k
    size: np.ndarray  # n_k


def improve(groups: Groups, estimates: np.ndarray, sizes: np.ndarray, limits: Limits) -> Groups:
    """No group falls below `min_samples`, or further below it, nor gets more clients than the largest one had."""
    seats = _seat(groups, estimates, sizes)
    idle_rounds = 0
    for left, right in islice(chain.from_iterable(map(tournament, repeat(len(groups)))), MAX_ROUNDS):
        blocks = (slice(start, start + PAIRS_AT_ONCE) for start in range(0, len(left), PAIRS_AT_ONCE))
        swaps = sum(_swap_best(seats, left[block], right[block], limits.min_samples) for block in blocks)
        idle_rounds = 0 if swaps else idle_rounds + 1
        if idle_rounds == len(groups):  # everyone has met everyone and there was nothing to gain
            break
    return [row[row >= 0].tolist() for row in seats.client]


def deviations(estimates: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """x_k = n_k (estimate of k - overall example-weighted mean), one row per client."""
    mean = sizes @ estimates / max(sizes.sum(), 1)
    return sizes[:, None] * (estimates - mean)


def tournament(groups: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rounds of pairs (left, right) in which every group meets every other exactly once.

    In round r of an odd number M of groups, i meets j when i + j = r modulo M. The one that would meet itself sits out,
    or meets the group left over if the number is even.
    """
    odd = groups - 1 + groups % 2
    everyone = np.arange(odd)
    for turn in range(odd):
        partner = (turn - everyone) % odd
        if groups % 2 == 0:
            partner[partner == everyone] = groups - 1
        left = everyone[everyone < partner]
        yield left, partner[left]


def _seat(groups: Groups, estimates: np.ndarray, sizes: np.ndarray) -> _Seats:
    client = np.full((len(groups), max(map(len, groups))), -1)
    for row, group in zip(client, groups, strict=True):
        row[: len(group)] = group
    taken = client >= 0
    vector = np.where(taken[:, :, None], deviations(estimates, sizes)[client], 0.0)
    return _Seats(client, vector, np.where(taken, sizes[client], 0))


def _swap_best(seats: _Seats, left: np.ndarray, right: np.ndarray, min_samples: int) -> int:
    """In every pair of groups make the swap that saves most, if it saves anything. Returns the number of swaps."""
    saving, scatter = _savings(seats, left, right, min_samples)
    flat = saving.reshape(len(left), -1)
    best = flat.argmax(axis=1)
    worth_it = flat[np.arange(len(left)), best] > TOLERANCE * scatter
    left_seat, right_seat = np.divmod(best[worth_it], saving.shape[2])
    here, there = (left[worth_it], left_seat), (right[worth_it], right_seat)
    for array in (seats.client, seats.vector, seats.size):
        array[here], array[there] = array[there], array[here]
    return len(left_seat)


def _savings(seats: _Seats, left: np.ndarray, right: np.ndarray, min_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """What swapping seat i on the left with seat j on the right saves, [pairs, seats, seats]; and the pairs' scatter.

    The Gram matrix of a pair's clients holds everything: with X the sum of the left group, the swap turns ||X||^2 into
    ||X||^2 + 2 X.(x_j - x_i) + ||x_j - x_i||^2, where X.x is a column sum and ||X||^2 a block sum of the matrix.
    """
    pairs, count = len(left), seats.client.shape[1]
    both = np.stack([left, right], axis=1)
    vector = seats.vector[both].reshape(pairs, 2 * count, -1)
    size = seats.size[both].reshape(pairs, 2 * count)
    gram = vector @ vector.transpose(0, 2, 1)
    norm = np.einsum("pkk->pk", gram)
    i, j = np.s_[:, :count, None], np.s_[:, None, count:]
    distance = norm[i] + norm[j] - 2 * gram[:, :count, count:]
    growth = size[j] - size[i]  # examples that the left group wins and the right one loses

    def saved_by(mine: slice, inbound: tuple[Any, ...], outbound: tuple[Any, ...], growth: np.ndarray) -> np.ndarray:
        with_me = gram[:, mine].sum(axis=1)
        square = with_me[:, mine].sum(axis=1)[:, None, None]
        before = size[:, mine].sum(axis=1)[:, None, None]
        after = before + growth
        swapped = (square + 2 * (with_me[inbound] - with_me[outbound]) + distance) / np.maximum(after, 1)
        saving = square / np.maximum(before, 1) - swapped
        return np.where(after >= np.minimum(before, min_samples), saving, -np.inf)

    saving = saved_by(np.s_[:count], j, i, growth) + saved_by(np.s_[count:], i, j, -growth)
    return saving, norm.sum(axis=1) / np.maximum(size.sum(axis=1), 1)
