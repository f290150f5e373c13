"""A policy of a user's own, as docs/own-algorithm.md has it: the code is read from there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError

PAGE = Path(__file__).parents[2] / "docs" / "own-algorithm.md"
SIZES = (9, 4, 7, 6, 12, 3)


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    section = PAGE.read_text().split("## A policy of your own")[1]
    code: dict[str, Any] = {"__name__": "page"}
    exec(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0], code)
    return code


def federate(folder: Path, *policies: Any, **options: Any) -> fedseq.Run:
    generator = torch.Generator().manual_seed(5)
    clients = [(torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in SIZES]
    chosen = {"algorithm": "fedavg", "rounds": 4, "fraction": 0.67, "engine": "serial", "batch_size": 4, **options}
    return fedseq.federate(lambda: nn.Linear(4, 3), clients, clients[0], folder=folder, policies=policies, **chosen)


def test_one_client_sends_whole_steps(written: dict[str, Any], tmp_path: Path) -> None:
    """With one client a round its model is the server's, and theta_0 is a run of a learning rate of almost nothing."""
    step, options = 2.0**-5, {"rounds": 1, "fraction": 0.1, "weight_decay": 0.0}
    start = federate(tmp_path / "start", lr=1e-30, **options).weights()
    plain = federate(tmp_path / "plain", lr=0.3, **options).weights()
    found = federate(tmp_path / "found", written["Quantized"](step), lr=0.3, **options).weights()
    for name, tensor in found.items():
        steps = (tensor - start[name]) / step
        assert torch.allclose(steps, steps.round(), atol=1e-4)
        assert torch.allclose(tensor, plain[name], atol=0.51 * step)
    assert any(not torch.equal(tensor, plain[name]) for name, tensor in found.items())


def test_of_four_that_are_drawn_the_two_smallest_count(written: dict[str, Any], tmp_path: Path) -> None:
    run = federate(tmp_path / "run", written["Fastest"]())
    for line in run.metrics:
        drawn = sorted(SIZES[unit] for unit in line["drawn"])
        assert sorted(SIZES[client] for chain in line["clients"] for client in chain) == drawn[:2]
    assert [line["left_out"] for line in run.metrics] == [1, 2, 3, 4]


def test_its_state_goes_on_with_the_run_and_another_policy_is_another_run(
    written: dict[str, Any], tmp_path: Path
) -> None:
    def bits(folder: Path) -> list[bytes]:
        return [(folder / name).read_bytes() for name in ("metrics.jsonl", "weights.safetensors")]

    policies = [written["Quantized"](), written["Fastest"]()]
    federate(tmp_path / "whole", *policies)
    federate(tmp_path / "parts", *policies, rounds=2)
    federate(tmp_path / "parts", *policies)
    assert bits(tmp_path / "parts") == bits(tmp_path / "whole")
    with pytest.raises(FedSeqError, match="other policies"):
        federate(tmp_path / "parts", written["Fastest"](needed=3), rounds=6)
