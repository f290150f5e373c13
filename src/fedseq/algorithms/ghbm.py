"""GHBM (Zaccone et al. 2023): heavy ball whose momentum is the server's mean step over the last tau rounds.

theta' = mean + beta (theta[t] - theta[t - tau]) / tau. Where few units train in a round, the last step alone points to
what those few hold; tau of at least 1/C rounds has seen all. The authors add the term to every local step, for which
one model more is sent; here the server adds it once, for nothing. theta[t] before the first round is the initial model.
beta = 0 is the inner algorithm.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State, weighted_mean, with_server_rule


def ghbm(inner: Algorithm = FEDAVG, momentum: float = 0.9, rounds: int = 5) -> Algorithm:
    """GHBM (Zaccone et al. 2023): the server adds its mean step over the last rounds as momentum."""
    return with_server_rule(
        inner,
        "ghbm",
        init=partial(init_past, inner=inner, rounds=rounds),
        merge=partial(merge_heavy, momentum=momentum, rounds=rounds),
    )


def init_past(weights: Tensor, setting: Setting, inner: Algorithm, rounds: int) -> State:
    """The parameters of the last models, "past/0" the latest."""
    start = weights[: setting.num_parameters]
    return {**inner.init(weights, setting), **{f"past/{i}": start for i in range(rounds)}}


def merge_heavy(
    state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting, momentum: float, rounds: int
) -> State:
    now = state["weights"][: setting.num_parameters]
    weights = weighted_mean(models, examples)
    weights[: setting.num_parameters].add_(now - state[f"past/{rounds - 1}"], alpha=momentum / rounds)
    older = {f"past/{i + 1}": state[f"past/{i}"] for i in range(rounds - 1)}
    return {**state, **older, "past/0": now, "weights": weights}
