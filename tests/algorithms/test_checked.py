"""Mistakes in a rule of one's own: each is a sentence that names the function and what it should give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedseq
from fedseq.algorithms.base import FEDAVG, checked
from fedseq.basics.errors import FedSeqError


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "merge",
            lambda state, models: state,
            r"merge of .*takes \(state, models\), and is called with \(state, models, ex",
        ),
        ("message", None, "message of .* is of type NoneType: give a function"),
        ("finish", lambda: None, r"finish of .* takes \(\), and is called with \(hop\)"),
        ("merge_every", 0, "merge_every of .* is 0"),
        ("merge_every", 1.5, "merge_every of .* is 1.5"),
        ("extra_passes", -1, "extra_passes of .* is -1"),
        ("superclients", "yes", "superclients of .* is 'yes': give True or False"),
        ("handed_on", "control", "handed_on of .* is 'control': give a tuple of names"),
    ],
)
def test_a_record_is_looked_at_before_a_run_begins(part: str, value: Any, words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        checked(replace(FEDAVG, **{part: value}))
    assert checked(FEDAVG) is FEDAVG


@pytest.mark.parametrize(
    ("part", "function", "words"),
    [
        ("init", lambda weights, setting: None, "init of .* returns NoneType. It returns a dict of tensors"),
        ("init", lambda weights, setting: {"a": 1}, "init of .* returns 'a' that is no tensor"),
        ("message", lambda state: [1], "message of .* returns list"),
        ("sent", lambda state: state["weights"][:3], r"sent of .* gives a model of torch.float32 \[3\]"),
        ("sent", lambda state: None, "sent of .* gives a model of NoneType"),
        ("observe", lambda state, results, setting: None, "observe of .* returns NoneType"),
        ("observe", lambda state, results, setting: {}, "observe of .* returns a state without 'weights'"),
        ("merge", lambda state, models, examples, setting: models[0], "merge of .* returns Tensor"),
        (
            "merge",
            lambda state, models, examples, setting: {**state, "weights": models[0].double()},
            "merge of .* gives a model of torch.float64",
        ),
        ("evaluated", lambda state: {"mean": state["weights"]}, "evaluated of .* returns no model by the name ''"),
        ("evaluated", lambda state: {"": 3}, "evaluated of .* returns '' that is no tensor"),
    ],
)
def test_what_functions_return_is_looked_at_where_it_is_used(
    part: str, function: Any, words: str, tmp_path: Path
) -> None:
    pair = (torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(FedSeqError, match=words):
        fedseq.federate(
            lambda: nn.Linear(3, 2), [pair, pair], pair, replace(FEDAVG, name="mine", **{part: function}),
            folder=tmp_path / "run", rounds=1, engine="serial",
        )  # fmt: skip
