"""Robust server rules: a few models that are far off, whatever sent them, do not move the result far.

Coordinate-wise median and trimmed mean (Yin et al. 2018). Every unit counts alike: a weight would give an attacker with
many examples its pull back. They take the place of averaging, in a wrapper over any algorithm that averages; buffers
are robust too, as a falsified BatchNorm statistic does as much harm as a falsified weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Algorithm, Setting, State

TRIMMED = 0.2  # share of the models cut off at either end of each coordinate


def median(inner: Algorithm = FEDAVG) -> Algorithm:
    return _robust("median", inner, coordinate_median)


def trimmed_mean(inner: Algorithm = FEDAVG, trimmed: float = TRIMMED) -> Algorithm:
    return _robust("trimmed-mean", inner, partial(coordinate_trimmed_mean, trimmed=trimmed))


def _robust(name: str, inner: Algorithm, middle: Callable[[Tensor], Tensor]) -> Algorithm:
    full = name if inner.name == "fedavg" else f"{inner.name}+{name}"
    return replace(inner, name=full, merge=partial(merge_robustly, middle=middle))


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
