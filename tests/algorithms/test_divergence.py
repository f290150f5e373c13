"""A run that leaves the finite numbers stops, says where, and keeps the last model that was finite.

Client 2 has points at x = 1000, so a step of lr 10^6 multiplies its weight by -10^12; the others have their point at
x = 0 and never move. Full participation, one step a round, a third (or so) of client 2's model in the mean:
weights of 10^12, 10^23 after rounds 1 and 2, and in round 3 a squared error of 10^52, which float32 does not have.
"""

from functools import partial

import pytest
import torch
from torch import nn

import fedseq
from fedseq import FedSeqError
from fedseq.runs.checkpoints import load_checkpoint
from fitting import that_fit

from .toys import half_square, points

CLIENTS = [points((0.0, 0.0)), points((0.0, 0.0)), points((1000.0, 1000.0)), points((0.0, 0.0))]


def slope() -> nn.Module:
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


@pytest.mark.parametrize(
    ("algorithm", "unit"),
    [("fedavg", 2), ("feddyn", 2), ("scaffold", 2), ("fedprox", 2), ("fedseq", 1), ("fedseqinter", 1)],
)
def test_divergence_names_the_place_and_keeps_the_last_finite_model(tmp_path, algorithm, unit):
    with pytest.raises(FedSeqError, match=rf"diverged in round \d+, unit {unit}, client 2: .*--lr") as raised:
        fedseq.federate(
            slope, CLIENTS, CLIENTS[0], algorithm, loss=half_square,
            fraction=1.0, lr=1e6, weight_decay=0.0, rounds=50, engine="serial", folder=tmp_path,
            **that_fit(algorithm, [(0, 1), (2, 3)], mu=1e-9, alpha_dyn=1e-9),
        )  # fmt: skip
    round_ = int(str(raised.value).split("round ")[1].split(",")[0])
    loaded = load_checkpoint(tmp_path / "checkpoints")
    assert loaded is not None
    progress, _ = loaded
    assert progress.round == round_ - 1
    assert f"model of round {round_ - 1} is kept" in str(raised.value)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in progress.state.values())
    run = fedseq.read_run(tmp_path)
    assert not run.finished
    assert [record["round"] for record in run.metrics] == list(range(1, round_))
    if algorithm in ("fedavg", "fedseq"):
        assert round_ == 3
        assert float(progress.state["weights"].abs().max()) > 1e20


def test_a_server_rule_that_overflows_keeps_the_last_finite_model_too(tmp_path):
    """The clients' models are finite, 10^38 times their mean is not: round 1 must not count."""
    clients = [points((0.0, 0.0)), points((1.0, 1.0))]
    with pytest.raises(FedSeqError, match="diverged in round 1"):
        fedseq.federate(
            slope, clients, clients[0], "fedavgm", loss=half_square,
            fraction=1.0, lr=1e3, server_lr=1e38, weight_decay=0.0, rounds=3, engine="serial", folder=tmp_path,
        )  # fmt: skip
    loaded = load_checkpoint(tmp_path / "checkpoints")
    assert loaded is not None
    assert bool(torch.isfinite(loaded[0].state["weights"]).all())


class Ratio(nn.Module):
    """Two logits, x * slope for class 1; a point at x = inf is 0 * inf = NaN until the slope moves."""

    def __init__(self, broken_from: float):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.broken_from = broken_from

    def forward(self, x):
        slope = self.weight if float(self.weight.detach()) < self.broken_from else self.weight * float("nan")
        return torch.stack([torch.zeros(len(x)), slope * x[:, 0]], 1)


def logistic(broken_from):
    """A client with x = 1 of class 1 only: every step of lr 1 moves the slope up by 1 - sigmoid(slope)."""
    x, y = torch.ones(4, 1), torch.ones(4, dtype=torch.long)
    return partial(Ratio, broken_from), [(x, y), (x, y)], (x, y)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_outputs_that_are_no_numbers_are_no_class(tmp_path, engine):
    """Slopes after rounds 1 and 2: 0.5, then 0.5 + sigmoid(-0.5) = 0.8775. With NaN from 0.8 on, round 2 is refused."""
    make, clients, test = logistic(0.8)
    with pytest.raises(FedSeqError, match=r"diverged in round 2: for 4 of the test examples .* not numbers"):
        fedseq.federate(
            make, clients, test, "fedavg", fraction=1.0, lr=1.0, weight_decay=0.0, batch_size=4, rounds=2,
            engine=engine, folder=tmp_path,
        )  # fmt: skip
    run = fedseq.read_run(tmp_path)
    assert [(record["round"], record["accuracy"]) for record in run.metrics] == [(1, 1.0)]
    assert not run.finished
    loaded = load_checkpoint(tmp_path / "checkpoints")
    assert loaded is not None
    assert loaded[0].round == 1
    assert loaded[0].state["weights"].item() == pytest.approx(0.5)
