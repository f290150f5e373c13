"""What a continued run recognises its parts by: whatever changes what is computed changes it, and nothing else."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedseq.algorithms import fedprox, fedseq
from fedseq.algorithms.base import Hop, signature
from fedseq.basics.errors import FedSeqError
from fedseq.basics.identity import plain


def made(source: str, name: str = "f", **known: Any) -> Any:
    """What a user's file defines."""
    space: dict[str, Any] = {"__name__": "my_models", "torch": torch, "nn": nn, **known}
    exec(source, space)
    return space[name]


FACTOR = "def f(x): return x * {}"
NETWORK = """
class Base(nn.Module):
    def scale(self, x): return x * {0}
class f(Base):
    wide = {1}
    def __init__(self, num_classes={2}): super().__init__()
    def forward(self, x):
        '''{3}'''
        return self.scale(x)  # {4}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (made(FACTOR.format(2)), made(FACTOR.format(3))),
        (made("f = lambda x: x + 1"), made("f = lambda x: x - 1")),
        (made("def f(x, k=1): return x * k"), made("def f(x, k=2): return x * k")),
        (made("def f(x): return x * K", K=1), made("def f(x): return x * K", K=2)),
        (made("def g(x): return x\ndef f(x): return g(x)"), made("def g(x): return -x\ndef f(x): return g(x)")),
        (made("def g(k): return lambda x: x * k\nf = g(1)"), made("def g(k): return lambda x: x * k\nf = g(2)")),
        (made("def f(x): return [y + 1 for y in x]"), made("def f(x): return [y + 2 for y in x]")),
        (partial(torch.add, 1), partial(torch.add, 2)),
        (partial(fedprox, 0.1), partial(fedprox, 0.2)),
        (torch.zeros(2), torch.ones(2)),
        (np.zeros(2), np.zeros(2, np.float32)),
        (nn.CrossEntropyLoss(label_smoothing=0.1).forward, nn.MSELoss().forward),
        *((made(NETWORK.format(*one)), made(NETWORK.format(1, 2, 3, "", "")))
          for one in ((9, 2, 3, "", ""), (1, 9, 3, "", ""), (1, 2, 9, "", ""))),
    ],
)  # fmt: skip
def test_what_changes_the_result_is_seen(before: Any, after: Any) -> None:
    assert plain(before) != plain(after)
    assert json.loads(json.dumps(plain(before))) == plain(before)


def test_comments_documentation_and_place_are_not() -> None:
    moved = "\n\n\n" + NETWORK.format(1, 2, 3, "what it does", "why")
    assert plain(made(NETWORK.format(1, 2, 3, "", ""))) == plain(made(moved)) != {}


class Slots:
    __slots__ = ("factor", "unset")

    def __init__(self, factor: float) -> None:
        self.factor = factor


def closing_over(value: Any) -> Any:
    return lambda: value


@pytest.mark.parametrize("closed", [torch, Slots(1.0), {"b", "a"}, [None, (torch.zeros(1),)], open, {1: Slots(2.0)}])
def test_a_closure_may_hold_anything(closed: Any) -> None:
    """A module has a `detach` as tensors do, a set no order, and an object with slots no dictionary."""
    found = plain(closing_over(closed))
    assert found == plain(closing_over(closed)) != plain(closing_over(None))


def test_slots_and_files_are_told_apart(tmp_path: Path) -> None:
    assert plain(closing_over(Slots(1.0))) == plain(closing_over(Slots(1.0))) != plain(closing_over(Slots(2.0)))
    for name in ("a", "b"):
        (tmp_path / name).touch()
    with (tmp_path / "a").open() as one, (tmp_path / "a").open() as same, (tmp_path / "b").open() as other:
        assert plain(closing_over(one)) == plain(closing_over(same)) != plain(closing_over(other))


def test_sets_of_words_are_the_same_whatever_the_hash_seed() -> None:
    code = """
from fedseq.basics.identity import plain
WORDS = {"one", "two", "three", "four"}
def f(x): return x in WORDS or x in {"five", "six", "seven", "eight"}
f.__module__ = "mine"
print(plain(f))
"""
    found = {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": str(seed)},
                       capture_output=True, text=True, check=True).stdout
        for seed in range(4)
    }  # fmt: skip
    assert len(found) == 1


def test_what_nests_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(FedSeqError, match="nested too deeply"):
        plain(closing_over(deep))
    while deep:  # which Python itself cannot let go of at once
        deep = deep.pop()


def test_functions_that_call_each_other_end() -> None:
    assert plain(made("def g(x): return f(x)\ndef f(x): return g(x)"))["function"] == "f"


def test_named_algorithms_are_told_by_their_hyper_parameters() -> None:
    assert signature(fedseq(fedprox(0.1))) == signature(fedseq(fedprox(0.1)))
    assert signature(fedseq(fedprox(0.1))) != signature(fedseq(fedprox(0.2)))
    assert signature(replace(fedprox(0.1), least_models=3)) == signature(fedprox(0.1))  # which only warns


def pull(strength: float, gradient: torch.Tensor, hop: Hop) -> None:
    gradient.add_(hop.weights, alpha=strength)


def test_positional_arguments_of_a_partial_count() -> None:
    one, two = (signature(replace(fedprox(0.0), correct=partial(pull, strength))) for strength in (0.1, 0.2))
    assert one["correct"]["arguments"] == [0.1]
    assert one != two
