"""FedDyn (Acar et al. 2021): each client's loss is bent so that its optimum is the federation's.

A client adds -g_k + alpha (theta - start) to its gradient and ends with g_k -= alpha (theta_k - start); the server
keeps h -= alpha/K sum(theta_k - theta) and takes mean(theta_k) - h/alpha, all clients counting alike. In a chain,
`start` is the predecessor's model; under FedSeqInter each slot's change is measured from its own start.
The paper prints the linear term with either sign: minus is right; and its server formula drops h's history: kept here.
`official` leaves the linear term out: the code published with the FedSeq paper takes it on `.data`, where it has no
gradient. There g_k has no effect at all (so it does not matter that the code updates it every batch); none is kept.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import (
    Algorithm,
    Hop,
    Setting,
    State,
    UnitResult,
    UploadAndMemory,
    keep_no_memory,
    weighted_mean,
    with_mean_buffers,
)
from fedseq.basics.errors import FedSeqError


def feddyn(alpha: float = 0.1, official: bool = False) -> Algorithm:
    """FedDyn (Acar et al. 2021): bends each client's loss until its optimum is the federation's.

    `official` leaves out the linear term, as the code published with the FedSeq paper does.
    """
    if not alpha > 0:
        raise FedSeqError(f"alpha_dyn must be greater than 0, not {alpha}: the server divides by it.")
    return Algorithm(
        "feddyn",
        correct=partial(bend, alpha=alpha),
        finish=keep_no_memory if official else partial(finish, alpha=alpha),
        init=zero_h,
        observe=partial(update_h, alpha=alpha),
        merge=partial(merge, alpha=alpha),
        evaluated=server_model_and_client_mean,
    )


def bend(gradient: Tensor, hop: Hop, alpha: float) -> None:
    gradient.add_(hop.weights - hop.start, alpha=alpha)
    if "g" in hop.memory:
        gradient.sub_(hop.memory["g"])


def finish(hop: Hop, alpha: float) -> UploadAndMemory:
    moved = (hop.weights - hop.start) * alpha
    return {}, {"g": hop.memory["g"] - moved if "g" in hop.memory else -moved}


def zero_h(weights: Tensor, setting: Setting) -> State:
    return {"h": torch.zeros_like(weights[: setting.num_parameters]), "client_mean": weights}


def update_h(state: State, results: Sequence[UnitResult], setting: Setting, alpha: float) -> State:
    h = state["h"].clone()
    for result in results:
        h.sub_((result.end - result.start)[: len(h)], alpha=alpha / setting.num_clients)
    return {**state, "h": h}


def merge(state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting, alpha: float) -> State:
    """theta <- mean(theta_k) - h/alpha"""
    mean = with_mean_buffers(weighted_mean(models, [1.0] * len(models)), models, examples, setting)
    weights = mean.clone()
    weights[: setting.num_parameters].sub_(state["h"], alpha=1 / alpha)
    return {**state, "weights": weights, "client_mean": mean}


def server_model_and_client_mean(state: State) -> dict[str, Tensor]:
    return {"": state["weights"], "client_mean": state["client_mean"]}
