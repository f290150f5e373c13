"""Server rules: what the server does with the merged model. They wrap any algorithm that merges by averaging.

FedAvgM (Hsu et al. 2019): momentum over rounds. FedAdam and FedYogi (Reddi et al. 2021): adaptive server optimisers,
without bias correction as in their paper. FairAvg (Michieli and Ozay 2021): every unit counts alike.
They act on parameters only; buffers are the mean weighted by examples. Neutral values: FedAvgM with momentum 0 and
lr 1 is the inner algorithm.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import (
    FEDAVG,
    Algorithm,
    Setting,
    State,
    weighted_mean,
    with_mean_buffers,
    with_server_rule,
)

ADAPTIVITY = 1e-3  # tau of Reddi et al.
SECOND_MOMENT = 0.99  # their beta_2

Step = Callable[[Tensor, State], tuple[Tensor, State]]  # direction and moments to a change and new moments


def fairavg(inner: Algorithm = FEDAVG) -> Algorithm:
    """FairAvg (Michieli and Ozay 2021): every unit counts alike, whatever it holds."""
    return with_server_rule(inner, "fairavg", merge=merge_uniform)


def merge_uniform(state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting) -> State:
    mean = weighted_mean(models, [1.0] * len(models))
    return {**state, "weights": with_mean_buffers(mean, models, examples, setting)}


def fedavgm(inner: Algorithm = FEDAVG, lr: float = 1.0, momentum: float = 0.9) -> Algorithm:
    """FedAvgM (Hsu et al. 2019): the server steps with momentum."""
    return _optimised("fedavgm", inner, partial(momentum_step, lr=lr, momentum=momentum), ("m",))


def fedadam(inner: Algorithm = FEDAVG, lr: float = 0.01, momentum: float = 0.9) -> Algorithm:
    """FedAdam (Reddi et al. 2021): the server steps with Adam."""
    return _optimised("fedadam", inner, partial(adam_step, lr=lr, momentum=momentum), ("m", "v"))


def fedyogi(inner: Algorithm = FEDAVG, lr: float = 0.01, momentum: float = 0.9) -> Algorithm:
    """FedYogi (Reddi et al. 2021): the server steps with Yogi, whose second moment changes slowly."""
    return _optimised("fedyogi", inner, partial(yogi_step, lr=lr, momentum=momentum), ("m", "v"))


def _optimised(name: str, inner: Algorithm, step: Step, moments: tuple[str, ...]) -> Algorithm:
    return with_server_rule(
        inner,
        name,
        init=partial(init_moments, inner=inner, moments=moments),
        merge=partial(merge_by_step, step=step),
    )


def init_moments(weights: Tensor, setting: Setting, inner: Algorithm, moments: tuple[str, ...]) -> State:
    zeros = torch.zeros_like(weights[: setting.num_parameters])
    start = {"m": zeros, "v": zeros + ADAPTIVITY**2}
    return {**inner.init(weights, setting), **{moment: start[moment] for moment in moments}}


def merge_by_step(
    state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting, step: Step
) -> State:
    """The merged model minus the old one is the direction in which the optimiser steps."""
    weights = weighted_mean(models, examples)
    old = state["weights"][: setting.num_parameters]
    change, moments = step(weights[: setting.num_parameters] - old, state)
    weights[: setting.num_parameters] = old + change
    return {**state, **moments, "weights": weights}


def momentum_step(delta: Tensor, state: State, lr: float, momentum: float) -> tuple[Tensor, State]:
    m = momentum * state["m"] + delta
    return lr * m, {"m": m}


def adam_step(delta: Tensor, state: State, lr: float, momentum: float) -> tuple[Tensor, State]:
    m = momentum * state["m"] + (1 - momentum) * delta
    v = SECOND_MOMENT * state["v"] + (1 - SECOND_MOMENT) * delta**2
    return lr * m / (v.sqrt() + ADAPTIVITY), {"m": m, "v": v}


def yogi_step(delta: Tensor, state: State, lr: float, momentum: float) -> tuple[Tensor, State]:
    m = momentum * state["m"] + (1 - momentum) * delta
    v = state["v"] - (1 - SECOND_MOMENT) * delta**2 * torch.sign(state["v"] - delta**2)
    return lr * m / (v.sqrt() + ADAPTIVITY), {"m": m, "v": v}
