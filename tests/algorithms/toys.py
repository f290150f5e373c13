"""Tiny federations whose numbers can be checked, and how to read back what a run ended with."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedseq.runs.checkpoints import load_checkpoint
from fedseq.runs.reading import Run

Client = tuple[Tensor, Tensor]


def half_square(output: Tensor, target: Tensor) -> Tensor:
    """The mean of (prediction - y)^2 / 2, so that its gradient has no factor 2."""
    return 0.5 * (output - target).square().mean()


def line() -> nn.Module:
    """y = weight * x + bias, from (0.5, -0.25)."""
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.fill_(0.5)
        module.bias.fill_(-0.25)
    return module


def points(*pairs: tuple[float, float]) -> Client:
    """A client from its (x, y) pairs."""
    x, y = zip(*pairs, strict=True)
    return torch.tensor(x).view(-1, 1), torch.tensor(y).view(-1, 1)


def quadratic(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(A, b) of a client's loss 1/2 theta'A theta - b'theta + const as a function of theta = (weight, bias)."""
    x, y = (tensor.double().numpy().ravel() for tensor in client)
    design = np.stack([x, np.ones_like(x)], axis=1)
    return design.T @ design / len(x), design.T @ y / len(x)


def final_weights(run: Run) -> np.ndarray:
    """The final model as one float64 vector, in the order of its names in the module."""
    named = load_file(run.folder / "weights.safetensors")
    return np.concatenate([tensor.double().numpy().ravel() for _, tensor in sorted(named.items(), key=_weight_first)])


def _weight_first(item: tuple[str, Tensor]) -> tuple[str, bool]:
    layer, _, kind = item[0].rpartition(".")
    return layer, kind != "weight"


def final_state(folder: Path) -> dict[str, np.ndarray]:
    """The server's state after the last round."""
    loaded = load_checkpoint(folder / "checkpoints")
    assert loaded is not None
    return {name: tensor.double().numpy() for name, tensor in loaded[0].state.items()}


def final_memory(folder: Path) -> dict[int, dict[str, np.ndarray]]:
    """What the clients remember after the last round."""
    loaded = load_checkpoint(folder / "checkpoints")
    assert loaded is not None
    return {k: {name: t.double().numpy() for name, t in kept.items()} for k, kept in loaded[0].memory.items()}
