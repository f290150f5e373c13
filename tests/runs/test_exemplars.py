"""Public exemplars: the same test set for every algorithm on named data, nothing lost of a user's own."""

from typing import Any

import numpy as np
import pytest
import torch

from fedseq import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts, split_test
from fedseq.training.examples import Examples
from fedseq.training.reporter import QUIET


def split(counts: list[int], **options: Any) -> tuple[Examples | None, Examples]:
    """Of a test set with so many examples of each class."""
    y = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    config = resolve({"dataset": "own", **options})
    return split_test(config, Examples(torch.arange(len(y)), y), [f"class {c}" for c in range(len(counts))])


@pytest.mark.parametrize("options", [
    {"algorithm": "fedavg"}, {"algorithm": "centralized"}, {"algorithm": "fedseq", "grouping": "random"},
    {"algorithm": "fedseq", "approximator": "classifier-all"},
])  # fmt: skip
def test_own_data_keeps_its_test_set_where_exemplars_are_not_used(options: dict[str, Any]) -> None:
    exemplars, left = split([1, 30, 50], **options)
    assert exemplars is None
    assert len(left.y) == 81
    with pytest.raises(FedSeqError, match="--exemplars has no effect in this run: it is for named data sets"):
        split([30], exemplars=5, **options)


@pytest.mark.parametrize(("counts", "each"), [([400, 300], 10), ([400, 57], 5), ([400, 19, 8], 1), ([2, 2], 1)])
def test_at_most_a_tenth_of_the_smallest_class_but_one(counts: list[int], each: int) -> None:
    exemplars, left = split(counts, algorithm="fedseq")
    assert exemplars is not None
    assert np.bincount(exemplars.y).tolist() == [each] * len(counts)
    assert np.bincount(left.y).tolist() == [count - each for count in counts]
    assert sorted([*exemplars.x.tolist(), *left.x.tolist()]) == list(range(sum(counts)))


@pytest.mark.parametrize("counts", [[40, 1, 40], [40, 0, 40]])
def test_the_only_example_of_a_class_is_never_taken(counts: list[int]) -> None:
    with pytest.raises(FedSeqError, match=rf"too few of class class 1 \({counts[1]}\)\. Add test examples, or use"):
        split(counts, algorithm="fedseq")


def test_estimates_without_exemplars_are_refused_before_any_work() -> None:
    with pytest.raises(FedSeqError, match="--exemplars 0 leaves nothing to estimate clients by"):
        split([40, 40], algorithm="fedseq", exemplars=0)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedseq", "centralized"])
def test_named_data_has_one_test_set_for_every_algorithm(algorithm: str) -> None:
    """36 test examples of each digit, of which a tenth, 3, become exemplars."""
    parts = named_parts(resolve({"dataset": "digits", "algorithm": algorithm}), QUIET)
    assert len(parts.task.test.y) == 360 - 30
