"""What engines are asked and what they answer.

A task says what is trained on what; a job is one chain of clients; a result is what came of it.
"""

import hashlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedseq.algorithms.base import Algorithm
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.models.adapters import trained_part
from fedseq.options.config import Config
from fedseq.options.tables import AUGMENTATIONS
from fedseq.training.evaluation import Evaluation
from fedseq.training.examples import Examples, fingerprint
from fedseq.training.weights import FlatModel, build_seeded, read

if TYPE_CHECKING:
    from fedseq.training.policy import Policy

Memory = dict[str, Tensor]  # what a client remembers between its visits, by name


class Skipped(NamedTuple):
    """A visit that did not count, and why."""

    client: int
    visit: int
    reason: str


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
    max_grad_norm: float | None = None
    seed: int = 0
    device: str = "cpu"
    kernels: str = "torch"  # who convolves; part of what is computed
    precision: str = "float32"  # of what layers compute
    frozen: Tensor = field(default_factory=lambda: torch.empty(0))  # parameters that nobody trains or sends
    policies: "tuple[Policy, ...]" = ()  # those that act where clients are trained

    @cached_property
    def augmentation(self) -> Callable[[Tensor, np.random.Generator], Tensor]:
        found: Callable[[Tensor, np.random.Generator], Tensor] = AUGMENTATIONS[self.augment].load()
        return found

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.train, self.clients, self.test)

    def on(self, device: str) -> "Task":
        check_device(device)
        return replace(
            self, device=device, loss=self.loss.to(device) if isinstance(self.loss, nn.Module) else self.loss,
            train=self.train.on(device), test=self.test.on(device), frozen=self.frozen.to(device),
        )  # fmt: skip

    @cached_property
    def frozen_digest(self) -> str:
        """Of the parameters that are not trained; empty where all are."""
        frozen = self.frozen.cpu().numpy()
        return hashlib.sha256(frozen.data).hexdigest()[:16] if len(frozen) else ""


def check_device(device: str) -> None:
    obstacle = _device_obstacle(device)
    if obstacle:
        raise FedSeqError(f"device '{device}' cannot be used here: {obstacle}.")


def check_device_of_workers(device: str) -> None:
    """Tried in a process of its own: CUDA does not survive the start of workers once it is in use here."""
    if not sys.platform.startswith("linux"):
        raise FedSeqError(f"worker processes on {device} need Linux. Use --engine serial.")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(_device_obstacle(device)), daemon=True)
    process.start()
    theirs.close()
    try:
        obstacle = ours.recv()
    except EOFError:
        obstacle = "the process that tried it died"
    process.join()
    if obstacle:
        raise FedSeqError(f"device '{device}' cannot be used by worker processes: {obstacle}.")


def _device_obstacle(device: str) -> str | None:
    """Why, and what to do."""
    if torch.cuda._is_in_bad_fork():
        return (
            "CUDA was used or looked at before they were started. Start anew, with PYTORCH_NVML_BASED_CUDA_CHECK=1 in "
            "the environment if it was torch.cuda.is_available() that looked, or use --engine serial"
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return f"{str(error).splitlines()[0].rstrip('.')}. Use --device cpu"
    return None


def make_task(
    config: Config,
    factory: Callable[[], nn.Module],
    train: Examples,
    clients: Sequence[np.ndarray],
    test: Examples,
    num_classes: int,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> Task:
    if config.home == config.device:
        check_device(config.device)
    else:
        check_device_of_workers(config.device)
    return Task(
        factory=trained_part(factory, config.trainable), train=train.on(config.home), clients=clients,
        test=test.on(config.home), loss=loss, num_classes=num_classes, augment=config.augment,
        batch_size=config.batch_size, momentum=config.momentum, weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm, seed=config.seed, device=config.home, precision=config.precision,
    )  # fmt: skip


def build_first(config: Config, task: Task) -> tuple[Task, FlatModel]:
    """theta_0 in a model, and the task with the parameters of it that are not trained."""
    model = build_seeded(task.factory, seeds.integer(task.seed, "init"), task.device)
    if len(model.frozen) and config.init_weights:
        read(Path(config.init_weights), model)
    return replace(task, frozen=model.frozen), replace(model, precision=task.precision)


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
    notes: Mapping[str, Any] = field(default_factory=dict)  # what a policy sends along, by its name


def chain_hops(clients: Sequence[int], passes: int, seed: int, round_: int) -> tuple[tuple[int, int], ...]:
    """(client, visit) in the order of training: every pass visits each client once, in an order of its own."""
    hops = []
    for visit in range(passes):
        order = seeds.generator(seed, "chain", round_, min(clients), visit).permutation(clients)
        hops += [(int(client), visit) for client in order]
    return tuple(hops)


@dataclass(frozen=True)
class Result:
    index: int
    start: Tensor
    end: Tensor
    examples: int  # held by the clients that were trained
    uploads: Mapping[str, Tensor]  # summed over the chain
    memory: Mapping[int, Memory]  # new memory of the chain's clients, committed with the round; empty: forgotten
    hops: tuple[tuple[int, int], ...]  # those that count
    loss_sum: float  # over the training examples seen
    seen: int
    bytes_down: int
    bytes_up: int
    rejected: tuple[Skipped, ...] = ()  # visits that were refused
    learned: Mapping[str, Any] = field(default_factory=dict)  # what a policy saw along the chain, by its name
    diverged: int | None = None  # the client at which loss or weights stopped being finite; the chain ends there

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.seen, 1)


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """A chain was left on the way, because nobody wants its result any more."""


def never() -> bool:
    return False


class PendingEvaluation(Protocol):
    @property
    def ready(self) -> bool:
        """Nothing is left to compute."""
        ...

    def result(self, stopped: Callable[[], bool] = never) -> Evaluation:
        """Computes what is still missing, and waits for it: not for long once `stopped`."""
        ...


class Engine(Protocol):
    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        """Results as they finish, in any order. Soon after `stopped` it ends, without the rest."""
        ...

    def begin_evaluation(self, weights: Tensor) -> PendingEvaluation:
        """An evaluation that workers see to when `run` has no job for them. The weights must stay as they are."""
        ...

    def evaluate(self, weights: Tensor) -> Evaluation: ...

    def close(self) -> None: ...
