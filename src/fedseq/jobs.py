"""What engines are asked and what they answer.

A task says what is trained on what; a job is one chain of clients; a result is what came of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedseq.algorithms.base import Algorithm
from fedseq.config import Config, known
from fedseq.errors import FedSeqError
from fedseq.examples import Examples
from fedseq.failures import Skipped

Memory = dict[str, Tensor]  # what a client remembers between its visits, by name


@dataclass(frozen=True)
class Task:
    """What does not change in a run: the model, every client's data, how a client trains."""

    factory: Callable[[], nn.Module]
    train: Examples
    clients: Sequence[np.ndarray]  # each client's indices into `train`
    test: Examples
    num_classes: int
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    augment: str = "none"
    batch_size: int = 64
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    seed: int = 0
    device: str = "cpu"


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise FedSeqError(f"device '{device}' can't be used here: {reason} Use --device cpu.") from None


def make_task(
    config: Config,
    factory: Callable[[], nn.Module],
    train: Examples,
    clients: Sequence[np.ndarray],
    test: Examples,
    num_classes: int,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> Task:
    check_device(config.device)

    def on_device(examples: Examples) -> Examples:
        return replace(examples, x=examples.x.to(config.device), y=examples.y.to(config.device))

    return Task(
        factory=factory, train=on_device(train), clients=clients, test=on_device(test), num_classes=num_classes,
        loss=loss, augment=known(config.augment), batch_size=config.batch_size, momentum=known(config.momentum),
        weight_decay=config.weight_decay, clip_norm=config.clip_norm, seed=config.seed, device=config.device,
    )  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One chain: the clients in the order of their visits, the model it starts from, the server's message."""

    index: int
    unit: int
    round: int
    hops: tuple[tuple[int, int], ...]  # (client, visit): visit counts the passes over a superclient
    start: Tensor
    algorithm: Algorithm
    lr: float
    epochs: int = 1
    message: Mapping[str, Tensor] = field(default_factory=dict)
    memory: Mapping[int, Memory] = field(default_factory=dict)  # of the chain's clients, as of the round's start
    purpose: str = "train"  # keeps the random streams of pre-training apart
    largest_change: float | None = None  # a gate on each hop; without one, what is not finite ends the chain
    attackers: Mapping[int, float] = field(default_factory=dict)  # clients that falsify their update by a factor


@dataclass(frozen=True)
class Result:
    index: int
    start: Tensor
    end: Tensor
    examples: int  # held by the clients that were trained
    uploads: Mapping[str, Tensor]  # summed over the chain
    memory: Mapping[int, Memory]  # new memory of the chain's clients, committed with the round
    hops: tuple[tuple[int, int], ...]  # those that count
    loss_sum: float  # over the training examples seen
    seen: int
    bytes_down: int
    bytes_up: int
    changes: tuple[float, ...] = ()  # how far each hop that counts moved the parameters; kept under a gate
    rejected: tuple[Skipped, ...] = ()  # by the gate
    diverged: int | None = None  # the client at which loss or weights stopped being finite; the chain ends there

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.seen, 1)
