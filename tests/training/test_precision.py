"""--precision bfloat16: layers compute in it, in training and evaluation alike; weights stay float32.

A bfloat16 has 8 significant bits: 1 + 2^-9 is rounded to 1 in it, and so is 1 - 2^-11.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.models import model_factory
from fedseq.models.networks import LeNet5
from fedseq.options.tables import MODELS
from fedseq.training.weights import flatten
from fedseq.using.predict import evaluate_run

X, LR = 1 + 2**-9, 2**-12
DIGITS: dict[str, Any] = {
    "dataset": "digits", "algorithm": "fedavg", "num_clients": 10, "fraction": 0.5, "model": "mlp", "rounds": 1,
    "precision": "bfloat16",
}  # fmt: skip


class One(nn.Module):
    """w * x, with w = 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


# The loss is (wx)^2 and its gradient 2wx * x. In bfloat16 x is 1, so that w becomes 1 - 2 LR = 1 - 2^-11, which only
# float32 can keep; the evaluation rounds it to 1 again.
@pytest.mark.parametrize(
    ("precision", "weight", "loss"),
    [("bfloat16", 1 - 2**-11, 1.0), ("float32", w := 1 - 2 * LR * X**2, (w * X) ** 2)],
)
def test_one_step_by_hand(tmp_path: Path, precision: str, weight: float, loss: float) -> None:
    example = torch.tensor([[X]]), torch.tensor([[0.0]])
    run = fedseq.federate(
        One, [example], example, "fedavg", loss=mse_loss, folder=tmp_path / "run", rounds=1, fraction=1.0, lr=LR,
        weight_decay=0.0, engine="serial", precision=precision,
    )  # fmt: skip
    rel = 0 if precision == "bfloat16" else 1e-7
    assert run.weights()["layer.weight"].item() == pytest.approx(weight, rel=rel, abs=0)
    assert run.weights()["layer.weight"].dtype is torch.float32
    assert run.metrics[0]["loss"] == pytest.approx(loss, rel=rel, abs=0)


def test_worker_processes_give_the_same_bits_and_a_saved_model_is_evaluated_alike(tmp_path: Path) -> None:
    here, there = (fedseq.run(DIGITS, tmp_path / engine, engine=engine) for engine in ("serial", "processes"))
    assert here.metrics == there.metrics
    assert all(torch.equal(tensor, there.weights()[name]) for name, tensor in here.weights().items())
    evaluation, _ = evaluate_run(tmp_path / "serial")
    assert evaluation.loss == here.metrics[-1]["loss"]


SHAPES = {"gru": (8,), "cnn1d": (2, 16)}


@pytest.mark.parametrize("name", MODELS)
def test_every_named_model_can(name: str) -> None:
    shape = SHAPES.get(name, (1, 28, 28))
    torch.manual_seed(0)
    model = replace(flatten(model_factory(name, shape, 5)()), precision="bfloat16")
    x = torch.randint(0, 5, (3, *shape)) if name == "gru" else torch.randn(3, *shape)
    outputs = model.outputs(x)
    assert outputs.dtype is torch.float32
    outputs.logsumexp(1).sum().backward()
    model.take_gradient()
    assert model.gradient.isfinite().all()
    assert model.gradient.abs().sum() > 0


def test_our_kernels_are_for_float32() -> None:
    pictures = torch.zeros(2, 1, 28, 28), torch.tensor([0, 1])
    with pytest.raises(FedSeqError, match=r"they compute in float32, and --precision is bfloat16. Use --kernels torch"):
        fedseq.federate(
            LeNet5, [pictures], pictures, "fedavg", rounds=1, kernels="fast",
            precision="bfloat16",
        )  # fmt: skip
