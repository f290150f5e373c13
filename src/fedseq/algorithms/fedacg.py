"""Lookahead (FedACG, Kim et al. 2024): units start from where the server's model is heading.

The server sends theta + lambda m, where m is the last change of its model: m' = mean - theta, theta' = mean. What is
evaluated and saved is theta', so that the step ahead never shows in a result. lambda = 0 is the inner algorithm.
The step is made on parameters; buffers are those of theta. Their proximal term to the model sent is FedProx's.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State, weighted_mean, with_server_rule


def fedacg(inner: Algorithm = FEDAVG, strength: float = 0.85) -> Algorithm:
    """FedACG (Kim et al. 2024): units start from where the server's model is heading."""
    return with_server_rule(
        inner,
        "fedacg",
        init=partial(init_change, inner=inner),
        merge=merge_and_note_change,
        sent=partial(send_ahead, inner=inner, strength=strength),
    )


def init_change(weights: Tensor, setting: Setting, inner: Algorithm) -> State:
    return {**inner.init(weights, setting), "change": torch.zeros_like(weights[: setting.num_parameters])}


def merge_and_note_change(state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting) -> State:
    mean = weighted_mean(models, examples)
    return {**state, "weights": mean, "change": (mean - state["weights"])[: setting.num_parameters]}


def send_ahead(state: State, inner: Algorithm, strength: float) -> Tensor:
    sent = inner.sent(state).clone()
    sent[: len(state["change"])].add_(state["change"], alpha=strength)
    return sent
