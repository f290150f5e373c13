"""Robust server rules: a few models that are far off, whatever sent them, do not move the result far.

Coordinate-wise median and trimmed mean (Yin et al. 2018). Every unit counts alike: a weight would give an attacker with
many examples its pull back. They take the place of averaging, in a wrapper over any algorithm that averages; buffers
are robust too, as a falsified BatchNorm statistic does as much harm as a falsified weight.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State, with_server_rule
from fedseq.basics.errors import FedSeqError

TRIMMED = 0.2  # share of the models cut off at either end of each coordinate


def median(inner: Algorithm = FEDAVG) -> Algorithm:
    """Each coordinate is the median over the units (Yin et al. 2018), so that models far off do not count."""
    return _robust("median", inner, coordinate_median, 3)


def trimmed_mean(inner: Algorithm = FEDAVG, trimmed: float = TRIMMED) -> Algorithm:
    """Each coordinate is the mean without its lowest and highest values (Yin et al. 2018), a fifth at either end."""
    if not 0 <= trimmed < 0.5:
        raise FedSeqError(f"trimmed must be from 0 to less than 0.5, not {trimmed}: it is cut off at either end.")
    return _robust("trimmed-mean", inner, partial(coordinate_trimmed_mean, trimmed=trimmed), 5)


def _robust(name: str, inner: Algorithm, middle: Callable[[Tensor], Tensor], least: int) -> Algorithm:
    return with_server_rule(inner, name, merge=partial(merge_robustly, middle=middle), least_models=least)


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
    name, least = algorithm.name, algorithm.least_models
    if merged >= least:
        return None
    reason = "one liar is not outvoted" if merged <= 2 else "all but the middle one or two are thrown away"
    if merged < setting.units_per_round:
        return (
            f"{name} merges {merged} chains of joined superclients, and needs {least}: {reason}. "
            "Lower --superclients-per-chain."
        )
    enough = f"--fraction {math.ceil(100 * least / setting.num_units) / 100:g}"
    remedy = enough if setting.num_units >= least else "more units: more clients, or smaller superclients"
    return f"{name} merges {merged} of {setting.num_units} units a round, and needs {least}: {reason}. Use {remedy}."
