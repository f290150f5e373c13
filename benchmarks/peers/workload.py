"""The round as a user of another framework would write it: plain PyTorch, but whole batches augmented as tensors."""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import cpu_by_process

CLIENTS, SIZE, DRAWN, BATCH, LR, WEIGHT_DECAY = 500, 100, 100, 64, 0.01, 4e-4
ROUNDS = 3  # the first one also starts things, so it does not count


def lenet5() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10),
    )  # fmt: skip


def client_data(client: int) -> tuple[Tensor, Tensor]:
    """Random pictures: they cost what real ones do."""
    rng = np.random.default_rng(client)
    x = rng.integers(0, 256, (SIZE, 3, 32, 32), dtype=np.uint8)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, 10, SIZE))


def augmented(x: Tensor) -> Tensor:
    """Crop, flip, scale."""
    rows, columns = torch.randint(0, 9, (2, len(x)))
    windows = nn.functional.pad(x, (4,) * 4).unfold(2, 32, 1).unfold(3, 32, 1)
    cropped = windows[torch.arange(len(x)), :, rows, columns]
    flipped = torch.where((torch.rand(len(x)) < 0.5).view(-1, 1, 1, 1), cropped.flip(3), cropped)
    return flipped.float().div_(255).sub_(0.47).div_(0.2)


def train(model: nn.Module, client: int) -> None:
    x, y = client_data(client)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    for batch in torch.randperm(SIZE).split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(augmented(x[batch])), y[batch]).backward()
        optimizer.step()


class Readings:
    """Core-seconds and seconds at the end of each round."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, dict[int, float]]] = []

    def take(self) -> None:
        self.taken.append((time.perf_counter(), cpu_by_process()))

    def best(self) -> tuple[float, float]:
        costs = []
        for (began, before), (ended, after) in zip(self.taken[1:], self.taken[2:], strict=False):
            costs.append((sum(after[pid] - before.get(pid, 0.0) for pid in after), ended - began))
        return min(costs)

    def report(self) -> None:
        cores, wall = self.best()
        print(f"RESULT {cores:.2f} {wall:.2f}", flush=True)  # noqa: T201
