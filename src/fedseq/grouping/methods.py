"""The methods phi of a grouping criterion (paper section III-A): from estimates to groups of clients."""

from dataclasses import dataclass

import numpy as np

from fedseq.grouping.exchange import improve
from fedseq.grouping.greedy import pick_groups
from fedseq.grouping.limits import Groups, Limits, cut


@dataclass(frozen=True)
class Problem:
    """What a method may look at. The estimates are finite."""

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
