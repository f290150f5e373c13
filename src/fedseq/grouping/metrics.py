"""The metrics tau(group, client) of a grouping criterion (paper section III-A): how well a client complements a group.

Larger is better for every one of them. A metric scores all candidate clients at once. `clients` holds one column per
candidate, so that each candidate's score is made of the same operations in the same order wherever its column stands:
equal candidates get equal scores, and reordering the candidates only reorders the scores.

`share` is the weight that a candidate would have in the group's mix after joining: its part of the examples, or one
half for the running average of the paper's Algorithm 3. `kl` and `gini` judge that mix, the others compare the
candidate with the group as it is and ignore the share.

Where the paper is silent: a vector of zeros has no direction, its cosine with anything counts as 0; `wasserstein`
reads any vector as a distribution over its index by normalising absolute values, which changes nothing for
probability vectors.
"""

from collections.abc import Callable

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray | float], np.ndarray]


def cosine(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    lengths = np.sqrt((group**2).sum()) * np.sqrt((clients**2).sum(axis=0))
    products = (group[:, None] * clients).sum(axis=0)
    return 1.0 - products / np.where(lengths > 0, lengths, np.inf)


def euclidean(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    return np.sqrt(((clients - group[:, None]) ** 2).sum(axis=0))


def wasserstein(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    """W1 on a line with unit steps: the area between the two cumulative distributions."""
    return np.abs(_cumulative(clients) - _cumulative(group[:, None])).sum(axis=0)


def kl(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    """-KL(mix || uniform), which is the entropy of the mix less its largest value log(classes)."""
    return -x_log_x(_mix(group, clients, share)).sum(axis=0) - np.log(len(group))


def gini(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    return 1.0 - (_mix(group, clients, share) ** 2).sum(axis=0)


def x_log_x(x: np.ndarray) -> np.ndarray:
    """Continuous at 0, where its value is 0."""
    return x * np.log(np.maximum(x, np.finfo(x.dtype).tiny))


def _mix(group: np.ndarray, clients: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    return group[:, None] + share * (clients - group[:, None])


def _cumulative(vectors: np.ndarray) -> np.ndarray:
    masses = np.abs(vectors)
    totals = masses.sum(axis=0)
    return (masses / np.where(totals > 0, totals, 1.0)).cumsum(axis=0)
