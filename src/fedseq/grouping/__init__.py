"""Superclients: groups of clients whose union looks like the whole (paper section III-A).

A grouping criterion is an approximator (what is known of a client's data), a metric (how well a client complements a
group) and a method (how groups are formed). The tables of options hold all of them by name;
`group_clients` applies a metric and a method to the estimates of an approximator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from threadpoolctl import threadpool_limits

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.grouping.approximators import CONFIDENCES, Reduction, reduce_weights
from fedseq.grouping.methods import Limits, Problem, short_groups
from fedseq.options.tables import METHODS, check_metric

__all__ = [
    "CONFIDENCES",
    "ESTIMATES",
    "Grouping",
    "Quality",
    "Reduction",
    "check_limits",
    "group_clients",
    "quality",
    "reduce_weights",
]

ESTIMATES = ("mean", "half")  # a group's estimate: example-weighted mean, or the paper's running half-half average


@dataclass(frozen=True)
class Grouping:
    """Every client is in exactly one group. Groups are in the order of their making, their members ascending."""

    groups: tuple[tuple[int, ...], ...]
    short: tuple[int, ...]  # positions of the groups with fewer than min_samples examples
    unknown: tuple[int, ...]  # clients whose estimate was not finite and counted as that of an average client


def group_clients(
    estimates: np.ndarray | None,
    sizes: np.ndarray,
    *,
    method: str,
    metric: str | None,
    min_samples: int,
    max_clients: int,
    rng: np.random.Generator,
    probabilities: bool,
    num_classes: int,
    estimate: str = "mean",
) -> Grouping:
    """Group clients by one row of estimates each, which only `random` does without, and their numbers of examples.

    A group closes at `min_samples` examples or `max_clients` clients.
    """
    if estimate not in ESTIMATES:
        raise unknown("group estimate", estimate, ESTIMATES)
    check_metric(metric, method, probabilities)
    sizes, limits = _checked_sizes(sizes), Limits(min_samples, max_clients)
    check_limits(sizes, limits)
    rows = _checked_estimates(estimates, len(sizes), method)
    known = np.isfinite(rows).all(axis=1)
    problem = Problem(
        estimates=_fill(rows, known, sizes, probabilities),
        sizes=sizes,
        limits=limits,
        metric=metric,
        half=estimate == "half",
        num_classes=num_classes,
    )
    with threadpool_limits(1):  # the same sums, and so the same choices, on any number of cores
        found = METHODS.row(method).load()(problem, rng)
    groups = tuple(tuple(sorted(group)) for group in found)
    return Grouping(groups, short_groups(groups, sizes, limits), tuple(np.flatnonzero(~known).tolist()))


def _fill(rows: np.ndarray, known: np.ndarray, sizes: np.ndarray, probabilities: bool) -> np.ndarray:
    """Unknown clients count as uniform, or as the overall mean where the estimates are no probabilities."""
    if probabilities:
        average = np.full(rows.shape[1], 1 / max(rows.shape[1], 1))
    else:
        average = sizes[known] @ rows[known] / max(sizes[known].sum(), 1)
    return np.where(known[:, None], rows, average)


def _checked_sizes(sizes: np.ndarray) -> np.ndarray:
    sizes = np.asarray(sizes, dtype=np.int64)
    if len(sizes) == 0:
        raise FedSeqError("there are no clients to group.")
    if sizes.min() < 0:
        raise FedSeqError(f"client {sizes.argmin()} has {sizes.min()} examples: a size cannot be negative.")
    return sizes


def check_limits(sizes: np.ndarray, limits: Limits) -> None:
    if limits.min_samples < 1 or limits.max_clients < 1:
        raise FedSeqError(
            f"min_samples and max_clients must be at least 1, not {limits.min_samples} and {limits.max_clients}."
        )
    reach = int(np.sort(sizes)[-limits.max_clients :].sum())
    if reach < limits.min_samples:
        raise FedSeqError(
            f"no superclient can hold min_samples={limits.min_samples} examples: the {limits.max_clients} largest "
            f"clients together have {reach}. Lower min_samples to {reach} or less, or raise max_clients."
        )


def _checked_estimates(estimates: np.ndarray | None, clients: int, method: str) -> np.ndarray:
    if estimates is None:
        if METHODS.row(method).estimates:
            raise FedSeqError(f"method '{method}' needs an estimate for every client; only 'random' does without.")
        return np.zeros((clients, 0))
    if estimates.ndim != 2 or len(estimates) != clients:
        raise FedSeqError(f"estimates of shape {estimates.shape} do not fit {clients} clients: one row each, please.")
    return np.asarray(estimates, dtype=float)


@dataclass(frozen=True)
class Quality:
    """How good superclients are (paper section IV-C), from the true label counts: for reports, never for grouping.

    One entry per superclient. A superclient without examples has balance and coverage 0.
    """

    balance: np.ndarray  # examples of the rarest class over examples of the most frequent one
    covered: np.ndarray  # share of the classes with at least one example
    distinct: np.ndarray  # number of the classes with at least one example
    examples: np.ndarray
    clients: np.ndarray

    def means(self) -> dict[str, float]:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: float(column.mean()) if len(column) else 0.0 for name, column in columns.items()}

    @property
    def fewest_classes(self) -> int:
        """In the worst superclient: the mean does not tell of a few that were made of what the others left."""
        return int(self.distinct.min()) if len(self.distinct) else 0


def quality(label_counts: np.ndarray, groups: Sequence[Sequence[int]]) -> Quality:
    """`label_counts` is [clients, classes]."""
    classes = label_counts.shape[1]
    totals = np.array([label_counts[list(group)].sum(axis=0) for group in groups]).reshape(-1, classes)
    distinct = (totals > 0).sum(axis=1)
    return Quality(
        balance=totals.min(axis=1) / np.maximum(totals.max(axis=1), 1),
        covered=distinct / classes,
        distinct=distinct,
        examples=totals.sum(axis=1),
        clients=np.array([len(group) for group in groups], dtype=int),
    )
