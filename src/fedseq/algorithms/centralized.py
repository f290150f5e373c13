"""Centralized training, the bound that convergence targets refer to: one client with all the data, one round an epoch.

Momentum is carried from epoch to epoch in the client's memory, so it is one run of ordinary SGD.
"""

from fedseq.algorithms.base import Algorithm, Hop, UploadAndMemory


def centralized() -> Algorithm:
    """The bound: one client with all the data, which keeps its momentum from round to round."""
    return Algorithm("centralized", finish=keep_velocity)


def keep_velocity(hop: Hop) -> UploadAndMemory:
    return {}, {} if hop.velocity is None else {"velocity": hop.velocity}
