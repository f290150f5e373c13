"""Robust server rules: a few models that are far off, whatever sent them, do not move the result far.

Coordinate-wise median and trimmed mean (Yin et al. 2018). Every unit counts alike: a weight would give an attacker with
many examples its pull back. They take the place of averaging, in a wrapper over any algorithm that averages; buffers
are robust too, as a falsified BatchNorm statistic does as much harm as a falsified weight.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State, with_server_rule
from fedseq.basics.errors import FedSeqError

TRIMMED = 0.2  # share of the models cut off at either end of each coordinate
LEAST_FOR_MEDIAN, LEAST_FOR_TRIMMED_MEAN = 3, 5  # models, below which these rules do not keep their promise


def median(inner: Algorithm = FEDAVG) -> Algorithm:
    """Each coordinate is the median over the units (Yin et al. 2018), so that models far off do not count."""
    return _robust("median", inner, coordinate_median)


def trimmed_mean(inner: Algorithm = FEDAVG, trimmed: float = TRIMMED) -> Algorithm:
    """Each coordinate is the mean without its lowest and highest values (Yin et al. 2018), a fifth at either end."""
    if not 0 <= trimmed < 0.5:
        raise FedSeqError(f"trimmed must be from 0 to less than 0.5, not {trimmed}: it is cut off at either end.")
    return _robust("trimmed-mean", inner, partial(coordinate_trimmed_mean, trimmed=trimmed))


def _robust(name: str, inner: Algorithm, middle: Callable[[Tensor], Tensor]) -> Algorithm:
    return with_server_rule(inner, name, merge=partial(merge_robustly, middle=middle))


def merge_robustly(
    state: State,
    models: Sequence[Tensor],
    examples: Sequence[float],
    setting: Setting,
    middle: Callable[[Tensor], Tensor],
) -> State:
    return {**state, "weights": middle(torch.stack(list(models)))}


def coordinate_median(models: Tensor) -> Tensor:
    """Of an even number of models, the mean of the two in the middle."""
    ordered = models.sort(dim=0).values
    return (ordered[(len(models) - 1) // 2] + ordered[len(models) // 2]) / 2


def coordinate_trimmed_mean(models: Tensor, trimmed: float) -> Tensor:
    """The mean without the lowest and the highest; at least one of each goes where there are three models or more."""
    cut = max(int(trimmed * len(models)), 1) if len(models) >= 3 else 0
    return models.sort(dim=0).values[cut : len(models) - cut].mean(dim=0)


def too_few(algorithm: Algorithm, setting: Setting, merged: int) -> str | None:
    """Why the robust rule of an algorithm, if it has one, hardly protects where so few models are merged a round."""
    merge: Any = algorithm.merge
    while isinstance(merge, partial) and "inner" in merge.keywords:  # an average stands behind the rule
        merge = merge.keywords["inner"].merge
    if not (isinstance(merge, partial) and merge.func is merge_robustly):
        return None
    is_median = merge.keywords["middle"] is coordinate_median
    rule, least = ("median", LEAST_FOR_MEDIAN) if is_median else ("trimmed-mean", LEAST_FOR_TRIMMED_MEAN)
    if merged >= least:
        return None
    reason = "one liar is not outvoted" if merged <= 2 else "all but the middle one or two are thrown away"
    if merged < setting.units_per_round:
        return f"{rule} merges {merged} chains of joined superclients, and needs {least}: {reason}. Lower --joined."
    enough = f"--fraction {math.ceil(100 * least / setting.num_units) / 100:g}"
    remedy = enough if setting.num_units >= least else "more units: more clients, or smaller superclients"
    return f"{rule} merges {merged} of {setting.num_units} units a round, and needs {least}: {reason}. Use {remedy}."
