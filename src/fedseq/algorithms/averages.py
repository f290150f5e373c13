"""Averages of the server's model over rounds: what is evaluated and saved changes, what is trained does not.

They stand behind any algorithm. The average is the server's model for all who use it; the raw one is evaluated beside
it. `ema` weighs a model by decay^age, the sum of the weights being 1 from the first round on (the random initial model
has none); `window` is the mean of the last models, of fewer in the first rounds. Buffers are averaged like parameters.
ema with decay 0 and window with 1 model are the inner algorithm.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State, compose, weighted_mean


def ema(inner: Algorithm = FEDAVG, decay: float = 0.9) -> Algorithm:
    """An exponential average of the server's models is evaluated and saved; training is not changed."""
    return replace(
        inner,
        name=compose(inner.name, "ema"),
        init=partial(init_average, inner=inner),
        merge=partial(merge_into_average, inner=inner, decay=decay),
        evaluated=partial(average_and_raw, inner=inner),
    )


def init_average(weights: Tensor, setting: Setting, inner: Algorithm) -> State:
    return {**inner.init(weights, setting), "average": weights, "averaged": torch.zeros((), dtype=torch.int64)}


def merge_into_average(
    state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting, inner: Algorithm, decay: float
) -> State:
    """average_t = (1 - w) average + w theta_t with w = (1 - decay) / (1 - decay^t): weights of sum 1 over t models."""
    merged = inner.merge(state, models, examples, setting)
    averaged = state["averaged"] + 1
    weight = (1 - decay) / (1 - decay ** int(averaged))
    average = (1 - weight) * state["average"] + weight * merged["weights"]
    return {**merged, "average": average, "averaged": averaged}


def average_and_raw(state: State, inner: Algorithm) -> dict[str, Tensor]:
    models = inner.evaluated(state)
    return {**models, "": state["average"], "raw": models[""]}


def window(inner: Algorithm = FEDAVG, models: int = 5) -> Algorithm:
    """The mean of the server's last models is evaluated and saved; training is not changed."""
    return replace(
        inner,
        name=compose(inner.name, "window"),
        merge=partial(merge_into_window, inner=inner, length=models),
        evaluated=partial(window_and_raw, inner=inner),
    )


def merge_into_window(
    state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting, inner: Algorithm, length: int
) -> State:
    """The last models are "window/0", the latest, and on; in the first rounds there are fewer."""
    merged = inner.merge(state, models, examples, setting)
    kept = {f"window/{i + 1}": model for i, model in enumerate(_window(state)[: length - 1])}
    return {**merged, **kept, "window/0": merged["weights"]}


def window_and_raw(state: State, inner: Algorithm) -> dict[str, Tensor]:
    models, last = inner.evaluated(state), _window(state)
    return {**models, "": weighted_mean(last, [1.0] * len(last)) if last else models[""], "raw": models[""]}


def _window(state: State) -> list[Tensor]:
    return [state[f"window/{i}"] for i in range(sum(key.startswith("window/") for key in state))]
