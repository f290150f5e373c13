"""FedSeq (Zaccone et al. 2022): superclients train their clients one after another, then the server averages.

Units are superclients; everything else is the inner algorithm's. FedSeq of superclients with one client is FedAvg.
"""

from dataclasses import replace

from fedseq.algorithms.base import FEDAVG, Algorithm, compose


def fedseq(inner: Algorithm = FEDAVG) -> Algorithm:
    """FedSeq (Zaccone et al. 2022): the clients of a superclient train one after another, handing the model on."""
    return replace(inner, name=compose("fedseq", inner.name), superclients=True)


def fedseqinter(inner: Algorithm = FEDAVG, merge_every: int | None = None) -> Algorithm:
    """FedSeq whose models wander from superclient to superclient and are merged only every N_S rounds.

    Each of the round's units has a slot with a model of its own, which trains on through the superclients drawn for
    that slot. Between merges the mean of the slots, weighted by the examples they trained on, is evaluated but not
    sent. merge_every = 1 is FedSeq.
    """
    return replace(inner, name=compose("fedseqinter", inner.name), superclients=True, merge_every=merge_every)
