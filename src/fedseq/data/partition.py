"""Dealing the training examples to clients: who holds what.

Every function returns one index array per client. Sizes differ by at most one and every example is given exactly once,
except by `dirichlet_of_authors`, which reproduces the unequal sizes of the authors' code.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.options.conditions import partition_of
from fedseq.options.tables import PARTITIONS

Indices = list[np.ndarray]


def partition_clients(
    labels: np.ndarray,
    num_clients: int,
    alpha: float,
    rng: np.random.Generator,
    partition: str | None = None,
    of_authors: bool = False,
) -> Indices:
    """Deal the examples by name; without one, as alpha asks (0: shards, inf: iid, else dirichlet)."""
    if not 1 <= num_clients <= len(labels):
        raise FedSeqError(
            f"--num-clients must be between 1 and the {len(labels)} training examples, not {num_clients}."
        )
    if not alpha >= 0:
        raise FedSeqError(f"--alpha must be 0 or more, not {alpha}.")
    deal: Callable[..., Indices] = PARTITIONS.row(partition or partition_of(alpha)).load()
    return (dirichlet_of_authors if of_authors else deal)(labels, num_clients, alpha, rng)


def shards(labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """Sort by label and cut into equal pieces: one class per client, two where a piece lies across a border."""
    return np.array_split(np.argsort(labels, kind="stable"), num_clients)


def iid(labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    return np.array_split(rng.permutation(len(labels)), num_clients)


def dirichlet(labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """Every client draws q ~ Dir(alpha) and takes its examples one class at a time following q (Hsu et al. 2019)."""
    pools = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(int(labels.max()) + 1)]
    sizes = [len(part) for part in np.array_split(labels, num_clients)]
    return [np.array(_take(pools, size, _dirichlet(alpha, len(pools), rng), rng), dtype=np.int64) for size in sizes]


def _dirichlet(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Dir(alpha * 1), also where alpha is so small that every gamma draw underflows, or so large that all are equal."""
    if math.isinf(alpha):
        return np.full(size, 1 / size)
    # log Gamma(alpha) = log Gamma(alpha + 1) + log(U) / alpha stays finite long after the draw itself would be 0.
    log_draws = np.log(rng.standard_gamma(alpha + 1, size)) + np.log(rng.random(size)) / max(alpha, 1e-300)
    draws = np.exp(log_draws - log_draws.max())
    shares: np.ndarray = draws / draws.sum()
    return shares


def _take(pools: list[list[int]], size: int, wanted: np.ndarray, rng: np.random.Generator) -> list[int]:
    """`size` examples without replacement, classes drawn from `wanted` renormalised over the pools not yet empty."""
    taken: list[int] = []
    while len(taken) < size:
        left = np.array([len(pool) for pool in pools])
        weights = np.where(left > 0, wanted, 0.0)
        if weights.sum() <= 0:  # nothing left of the classes this client wanted: in proportion to what remains
            weights = left.astype(float)
        counts = rng.multinomial(size - len(taken), weights / weights.sum())
        for pool, count in zip(pools, np.minimum(counts, left), strict=True):
            taken += [pool.pop() for _ in range(count)]
    return taken


def dirichlet_of_authors(labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    """The authors' code: each *class* is spread by Dir(alpha) over the clients not yet full; best of 100 draws by
    the spread of sizes. Sizes differ, and a client may end with no example when clients are many."""
    draws = (_spread_classes(labels, num_clients, alpha, rng) for _ in range(_OFFICIAL_DRAWS))
    return min(draws, key=lambda clients: float(np.std([len(client) for client in clients])))


_OFFICIAL_DRAWS = 100


def _spread_classes(labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator) -> Indices:
    owner = np.empty(len(labels), dtype=np.int64)
    held = np.zeros(num_clients)
    for c in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == c))
        share = _dirichlet(alpha, num_clients, rng) * (held < len(labels) / num_clients)
        if share.sum() <= 0:  # all the mass fell on clients that are full
            share = (held < len(labels) / num_clients).astype(float)
        cuts = (np.cumsum(share / share.sum())[:-1] * len(members)).astype(int)
        counts = np.diff([0, *cuts, len(members)])
        owner[members] = np.repeat(np.arange(num_clients), counts)
        held += counts
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(held.astype(int))[:-1])


def label_counts(labels: np.ndarray, clients: Sequence[np.ndarray], num_classes: int) -> np.ndarray:
    """Examples of each class at each client: [clients, classes]."""
    return np.stack([np.bincount(labels[client], minlength=num_classes) for client in clients])
