"""FedProx (Li et al. 2020): a proximal term keeps a client near the model it was given.

In a chain that is its predecessor's model. mu = 0 is FedAvg.
"""

from functools import partial

from torch import Tensor

from fedseq.algorithms.base import Algorithm, Hop


def fedprox(mu: float = 0.01) -> Algorithm:
    """FedProx (Li et al. 2020): a spring of strength `mu` holds each client to the model that it was given."""
    return Algorithm("fedprox", correct=partial(pull_to_start, mu=mu))


def pull_to_start(gradient: Tensor, hop: Hop, mu: float) -> None:
    gradient.add_(hop.weights - hop.start, alpha=mu)
