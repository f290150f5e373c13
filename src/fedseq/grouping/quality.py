"""How good superclients are (paper section IV-C), from the true label counts: for reports, never for grouping."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Quality:
    """One entry per superclient. A superclient without examples has balance and coverage 0."""

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
