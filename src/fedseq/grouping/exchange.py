"""The method `exchange`, ours: swap clients between superclients until no swap makes their mixes more alike.

Minimises sum over superclients S of n_S * ||mean estimate of S - target||^2, which is anticlustering: every group is
to look like the whole. The target, uniform for probability vectors and the overall mean otherwise, need not be known:
with m the overall example-weighted mean and n all examples,

    sum_S n_S ||m_S - target||^2  =  sum_S n_S ||m_S - m||^2  +  n ||m - target||^2,

and no swap changes the last term. With x_k = n_k (estimate of k - m) and X_S the sum of x_k over S, what is left to
minimise is sum_S ||X_S||^2 / n_S. No label is ever looked at.

Groups meet in pairs as in a round-robin tournament. The pairs of one round have no group in common, so the best swaps
of all pairs are found in one vectorised step and are made at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from fedseq.grouping.limits import Groups, Limits

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
