"""When a superclient is full, and what happens to the clients left over (paper section III-A, Algorithms 2 and 3).

The paper leaves the last group as it comes. Ours, if short of examples, is dealt out to the groups with the fewest.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Groups = list[list[int]]


@dataclass(frozen=True)
class Limits:
    """A group takes clients until it holds `min_samples` examples or `max_clients` clients."""

    min_samples: int
    max_clients: int

    def full(self, examples: int, clients: int) -> bool:
        return examples >= self.min_samples or clients >= self.max_clients


def cut(order: Iterable[int], sizes: np.ndarray, limits: Limits) -> Groups:
    """Fill one group after the other with the clients in the given order."""
    groups: Groups = []
    group: list[int] = []
    for client in order:
        group.append(int(client))
        if limits.full(sizes[group].sum(), len(group)):
            groups.append(group)
            group = []
    return deal_out_last([*groups, group] if group else groups, sizes, limits)


def deal_out_last(groups: Groups, sizes: np.ndarray, limits: Limits) -> Groups:
    """Give the clients of a last group that is short, in turn, to the group with the fewest examples and a free place.

    Ties go to the group made first. Clients for whom no group has a place stay behind as a short group.
    """
    if len(groups) < 2 or sizes[groups[-1]].sum() >= limits.min_samples:
        return groups
    *others, last = groups
    examples = [int(sizes[group].sum()) for group in others]
    for turn, client in enumerate(last):
        open_groups = [index for index, group in enumerate(others) if len(group) < limits.max_clients]
        if not open_groups:
            return [*others, last[turn:]]
        smallest = min(open_groups, key=examples.__getitem__)
        others[smallest] = [*others[smallest], client]
        examples[smallest] += int(sizes[client])
    return others


def short_groups(groups: Iterable[Iterable[int]], sizes: np.ndarray, limits: Limits) -> tuple[int, ...]:
    return tuple(i for i, group in enumerate(groups) if sizes[list(group)].sum() < limits.min_samples)
