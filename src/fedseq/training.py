"""The only SGD loop. Everything that trains (clients, chains, pre-training, centralized) passes here.

A task says what is trained on what; a job is one chain of clients; a result is what came of it. Whoever runs jobs
(engines/) calls `run_job`, which depends on nothing but its arguments, so that every place gives the same bits.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedseq import seeds
from fedseq.algorithms.base import Algorithm, Hop
from fedseq.augment import AUGMENTATIONS
from fedseq.evaluation import EVALUATION_BATCH, Evaluation, evaluate, predict
from fedseq.examples import Examples, lay_channels_last, model_input, take
from fedseq.failures import Skipped
from fedseq.gate import reason_to_reject
from fedseq.weights import FlatModel, flatten

__all__ = [
    "EVALUATION_BATCH",
    "Evaluation",
    "Examples",
    "Job",
    "Result",
    "Task",
    "build",
    "evaluate",
    "one_thread",
    "predict",
    "prepare",
    "run_job",
]

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
    loss: float  # mean over the training examples seen
    bytes_down: int
    bytes_up: int
    changes: tuple[float, ...] = ()  # how far each hop that counts moved the parameters; kept under a gate
    rejected: tuple[Skipped, ...] = ()  # by the gate
    diverged: int | None = None  # the client at which loss or weights stopped being finite; the chain ends there


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread: two give other bits, and processes use the cores better than threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_job(task: Task, model: FlatModel, job: Job) -> Result:
    """Train the model client after client along the chain."""
    chain = Chain(job, {client: dict(kept) for client, kept in job.memory.items()})
    model.load(job.start)
    for client, visit in job.hops:
        before = model.vector.clone()
        trained = train_hop(task, model, job, client, visit, chain.memory.get(client, {}))
        if client in job.attackers:
            model.vector.copy_(before + job.attackers[client] * (model.vector - before))
        if chain.take(client, visit, trained, before, model.vector, len(model.parameters)):
            continue
        if chain.diverged is not None:
            break
        model.load(before)
    return chain.result(model.vector.clone(), task.clients)


@dataclass
class Chain:
    """What the server knows of a chain while its hops come in, wherever they are computed."""

    job: Job
    memory: dict[int, Memory]  # of its clients, as of the last hop that counts
    uploads: dict[str, Tensor] = field(default_factory=dict)
    hops: list[tuple[int, int]] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    rejected: list[Skipped] = field(default_factory=list)
    loss_sum: float = 0.0
    seen: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    diverged: int | None = None

    def take(
        self, client: int, visit: int, trained: "Trained", before: Tensor, after: Tensor, num_parameters: int
    ) -> bool:
        """Count a hop, unless its update is refused."""
        self.bytes_down += _nbytes(before, *self.job.message.values())
        self.bytes_up += _nbytes(after, *trained.upload.values())
        if self.job.largest_change is None:
            if not math.isfinite(trained.loss_sum) or not _all_finite(after):
                self.diverged = client
                return False
        else:
            change = float((after - before)[:num_parameters].norm())
            reason = reason_to_reject(change, after, trained.loss_sum, self.job.largest_change)
            if reason is not None:
                self.rejected.append(Skipped(client, visit, reason))
                return False
            self.changes.append(change)
        self.memory[client] = trained.memory
        for name, upload in trained.upload.items():
            self.uploads[name] = self.uploads[name] + upload if name in self.uploads else upload
        self.hops.append((client, visit))
        self.loss_sum += trained.loss_sum
        self.seen += trained.seen
        return True

    def result(self, end: Tensor, clients: Sequence[np.ndarray]) -> Result:
        visited = {client for client, _ in self.hops}
        return Result(
            index=self.job.index,
            start=self.job.start,
            end=end,
            examples=sum(len(clients[client]) for client in visited),
            uploads=self.uploads,
            memory={client: self.memory[client] for client in sorted(visited) if self.memory.get(client)},
            hops=tuple(self.hops),
            loss=self.loss_sum / max(self.seen, 1),
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            changes=tuple(self.changes),
            rejected=tuple(self.rejected),
            diverged=self.diverged,
        )


@dataclass(frozen=True)
class Trained:
    """What a client gives back beside its model, and what it remembers."""

    upload: Mapping[str, Tensor]
    memory: Memory
    loss_sum: float
    seen: int


def train_hop(task: Task, model: FlatModel, job: Job, client: int, visit: int, memory: Memory) -> Trained:
    """The SGD loop: `job.epochs` passes over one client's examples."""
    keys = (job.round, client, visit)
    rng = seeds.generator(task.seed, job.purpose, *keys)
    start = model.parameters.clone()
    velocity = None
    if task.momentum:
        velocity = memory["velocity"].clone() if "velocity" in memory else torch.zeros_like(start)
    hop = Hop(
        start=start,
        weights=model.parameters,
        message=job.message,
        memory=memory,
        lr=job.lr,
        velocity=velocity,
        gradient_at_start=lambda: _gradient_at(start, task, model, job, client, keys),
    )
    algorithm, gradient, weights = job.algorithm, model.gradient, model.parameters
    loss_sum = torch.zeros((), device=gradient.device)
    with torch.random.fork_rng(devices=[]), _training_mode(model, len(task.clients[client])):
        torch.manual_seed(seeds.integer(task.seed, "dropout", *keys))
        for _ in range(job.epochs):
            for batch in _batches(rng.permutation(task.clients[client]), task.batch_size, model):
                loss_sum += len(batch) * _backward(task, model, batch, rng)
                if algorithm.correct is not None:
                    algorithm.correct(gradient, hop)
                if task.clip_norm is not None:
                    gradient.mul_((task.clip_norm / (gradient.norm() + 1e-12)).clamp(max=1.0))
                if task.weight_decay:
                    gradient.add_(weights, alpha=task.weight_decay)
                if velocity is None:
                    weights.sub_(gradient, alpha=job.lr)
                else:
                    weights.sub_(velocity.mul_(task.momentum).add_(gradient), alpha=job.lr)
                hop.steps += 1
    upload, new_memory = algorithm.finish(hop)
    return Trained(upload, new_memory, float(loss_sum), job.epochs * len(task.clients[client]))


def _backward(task: Task, model: FlatModel, batch: np.ndarray, rng: np.random.Generator) -> Tensor:
    """The gradient of the mean loss over the batch goes to model.gradient; the loss is returned."""
    index = torch.from_numpy(batch).to(task.train.x.device)
    x = AUGMENTATIONS[task.augment](take(task.train.x, index), rng)
    loss = task.loss(model.module(model_input(x, task.train, model.channels_last)), task.train.y[index])
    model.gradient.zero_()
    loss.backward()
    return loss.detach()


def _gradient_at(start: Tensor, task: Task, model: FlatModel, job: Job, client: int, keys: tuple[int, ...]) -> Tensor:
    """The mean gradient of the loss over all the client's examples at `start`; the model is left as it was."""
    rng = seeds.generator(task.seed, job.purpose + "-gradient", *keys)
    before = model.vector.clone()
    model.parameters.copy_(start)
    total = torch.zeros_like(start)
    indices = task.clients[client]
    with torch.random.fork_rng(devices=[]), _training_mode(model, len(indices)):
        torch.manual_seed(seeds.integer(task.seed, "dropout-gradient", *keys))
        for batch in _batches(indices, task.batch_size, model):
            _backward(task, model, batch, rng)
            total.add_(model.gradient, alpha=len(batch) / len(indices))
    model.load(before)
    return total


def _batches(order: np.ndarray, size: int, model: FlatModel) -> list[np.ndarray]:
    """Consecutive batches; with BatchNorm a last batch of one example, which has no variance, joins the one before."""
    cuts = list(range(size, len(order), size))
    if cuts and len(order) - cuts[-1] == 1 and _batch_norms(model):
        cuts.pop()
    return [batch for batch in np.split(order, cuts) if len(batch)]


def _batch_norms(model: FlatModel) -> list[nn.Module]:
    return [layer for layer in model.module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


@contextlib.contextmanager
def _training_mode(model: FlatModel, examples: int) -> Iterator[None]:
    """Train mode; a client with one example keeps BatchNorm's statistics, as it has no variance of its own."""
    model.module.train()
    if examples == 1:
        for layer in _batch_norms(model):
            layer.eval()
    yield


def build(task: Task) -> FlatModel:
    """A model to run jobs on; what it is initialised with does not matter, every job loads its own weights."""
    with torch.random.fork_rng(devices=[]):
        return flatten(task.factory(), task.device)


def prepare(task: Task, model: FlatModel) -> Task:
    """The task with its data laid out as the model reads it: done once, where many jobs are run."""
    if not model.channels_last:
        return task
    return replace(task, train=lay_channels_last(task.train), test=lay_channels_last(task.test))


def _all_finite(vector: Tensor) -> bool:
    """The extremes of a vector with inf or nan in it are not finite; isfinite().all() costs twenty times as much."""
    return all(bool(extreme.isfinite()) for extreme in torch.aminmax(vector))


def _nbytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
