"""The only SGD loop. Everything that trains (clients, chains, pre-training, centralized) passes here."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedseq.algorithms.base import Algorithm, Hop, UploadAndMemory
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.models import kernels
from fedseq.training.examples import lay_channels_last, model_input, take
from fedseq.training.jobs import Job, Memory, Task
from fedseq.training.weights import FlatModel, build_seeded


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread: two give other bits, and processes use the cores better than threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Trained:
    """What a client gives back beside its model, and what it remembers."""

    upload: Mapping[str, Tensor]
    memory: Memory
    loss_sum: float
    seen: int


def train_hop(
    task: Task, model: FlatModel, job: Job, client: int, visit: int, memory: Memory, before: Tensor
) -> Trained:
    """The SGD loop: `job.epochs` passes over one client's examples. `before` is the model's vector as it is now."""
    model.reset_counters()  # a client elsewhere would start from a module of its own
    keys = (job.round, client, visit)
    rng = seeds.generator(task.seed, job.purpose, *keys)
    start = before[: len(model.parameters)]
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
        gradient_at_start=lambda: _gradient_at(start, task, model, job, keys),
    )
    loss_sum = torch.zeros((), device=start.device)
    with _unchanged(job, memory, before):
        with _training_mode(task, model, "dropout", keys):
            for _ in range(job.epochs):
                for batch in _batches(rng.permutation(task.clients[client]), task.batch_size, model):
                    loss_sum += len(batch) * _backward(task, model, batch, rng)
                    _step(task, model, job, hop)
                    hop.steps += 1
        upload, new_memory = _finished(job.algorithm, hop, model)
    return Trained(upload, new_memory, float(loss_sum), job.epochs * len(task.clients[client]))


def _backward(task: Task, model: FlatModel, batch: np.ndarray, rng: np.random.Generator) -> Tensor:
    """The gradient of the mean loss over the batch goes to the parameters; the loss is returned."""
    index = torch.from_numpy(batch).to(task.train.x.device)
    x = task.augmentation(take(task.train.x, index), rng)
    loss = task.loss(model.outputs(model_input(x, task.train, model.channels_last)), task.train.y[index])
    loss.backward()
    return loss.detach()


@contextlib.contextmanager
def _unchanged(job: Job, memory: Memory, before: Tensor) -> Iterator[None]:
    """An algorithm leaves alone what it is given, as others read it too: the server, or a hop that is tried again."""
    lent = {"start": before}
    lent |= {f"message[{name!r}]": tensor for name, tensor in job.message.items()}
    lent |= {f"memory[{name!r}]": tensor for name, tensor in memory.items()}
    versions = {name: tensor._version for name, tensor in lent.items()}
    yield
    changed = [name for name, tensor in lent.items() if tensor._version != versions[name]]
    if changed:
        raise FedSeqError(
            f"algorithm '{job.algorithm.name}' changes hop.{changed[0]}, which others read too. Let it change a copy."
        )


def _finished(algorithm: Algorithm, hop: Hop, model: FlatModel) -> UploadAndMemory:
    found = algorithm.finish(hop)
    match found:
        case (Mapping() as upload, dict() as memory):
            wrong = [name for name, value in {**upload, **memory}.items() if not isinstance(value, Tensor)]
            if not wrong:
                return _lasting(upload, model), _lasting(memory, model)
            what = f"{wrong[0]!r} that is no tensor"
        case _:
            what = type(found).__name__
    raise FedSeqError(
        f"finish of algorithm '{algorithm.name}' returns {what}. It returns two dicts of tensors: what is uploaded, "
        "and what the client remembers."
    )


def _lasting(tensors: Mapping[str, Tensor], model: FlatModel) -> dict[str, Tensor]:
    """Copies of what lies in the model, such as `hop.weights`, as the next client will train there."""
    passing = {part.untyped_storage().data_ptr() for part in (model.vector, model.gradient)}
    return {
        name: tensor.clone() if tensor.untyped_storage().data_ptr() in passing else tensor
        for name, tensor in tensors.items()
    }


def _step(task: Task, model: FlatModel, job: Job, hop: Hop) -> None:
    """One step of SGD; the gradient becomes one vector only for those who change it as a whole."""
    correct, gradient, weights = job.algorithm.correct, model.gradient, model.parameters
    velocity = hop.velocity if task.momentum else None  # an algorithm may have one of its own there
    if correct is None and task.max_grad_norm is None and velocity is None:
        model.descend(job.lr, task.weight_decay)
        return
    model.take_gradient()
    if correct is not None and correct(gradient, hop) is not None:
        raise FedSeqError(
            f"correct of algorithm '{job.algorithm.name}' returns something. Let it change the gradient it is given."
        )
    if task.max_grad_norm is not None:
        gradient.mul_((task.max_grad_norm / (gradient.norm() + 1e-12)).clamp(max=1.0))
    if velocity is None:
        kernels.descend(weights, gradient, job.lr, task.weight_decay)
        return
    if task.weight_decay:
        gradient.add_(weights, alpha=task.weight_decay)
    weights.sub_(velocity.mul_(task.momentum).add_(gradient), alpha=job.lr)


def _gradient_at(start: Tensor, task: Task, model: FlatModel, job: Job, keys: tuple[int, int, int]) -> Tensor:
    """The mean gradient of the loss over all the client's examples at `start`; the model is left as it was."""
    rng = seeds.generator(task.seed, job.purpose + "-gradient", *keys)
    before = model.vector.clone()
    model.parameters.copy_(start)
    total = torch.zeros_like(start)
    _, client, _ = keys
    indices = task.clients[client]
    with _training_mode(task, model, "dropout-gradient", keys):
        for batch in _batches(indices, task.batch_size, model):
            _backward(task, model, batch, rng)
            model.take_gradient()
            total.add_(model.gradient, alpha=len(batch) / len(indices))
    model.vector.copy_(before)
    return total


def _batches(order: np.ndarray, size: int, model: FlatModel) -> list[np.ndarray]:
    """Consecutive batches; with BatchNorm a last batch of one example, which has no variance, joins the one before."""
    cuts = list(range(size, len(order), size))
    if cuts and len(order) - cuts[-1] == 1 and _batch_norms(model):
        cuts.pop()
    return [batch for batch in np.split(order, cuts) if len(batch)]


def refuse_batches_of_one(task: Task, model: FlatModel) -> None:
    if task.batch_size == 1 and _batch_norms(model):
        raise FedSeqError("a batch of one example has no variance, which BatchNorm needs. Use --batch-size 2 or more.")


def _batch_norms(model: FlatModel) -> list[nn.Module]:
    return [layer for layer in model.module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


@contextlib.contextmanager
def _training_mode(task: Task, model: FlatModel, purpose: str, keys: tuple[int, int, int]) -> Iterator[None]:
    """Train mode, with random numbers of the layers' own that depend on `purpose` and `keys` alone.

    A client with one example keeps BatchNorm's statistics, as it has no variance of its own.
    """
    _, client, _ = keys
    model.module.train()
    if len(task.clients[client]) == 1:
        for layer in _batch_norms(model):
            layer.eval()
    # torch.manual_seed would also note, at some cost, who seeded the GPUs that nobody uses.
    seed = torch.default_generator.manual_seed if task.device == "cpu" else torch.manual_seed
    with torch.random.fork_rng(devices=[]):
        seed(seeds.integer(task.seed, purpose, *keys))
        yield


def build(task: Task) -> FlatModel:
    """A model to run jobs on: theta_0, over which every job loads its own weights, and the task's frozen parameters."""
    model = build_seeded(task.factory, seeds.integer(task.seed, "init"), task.device)
    model.frozen.copy_(task.frozen)  # a factory may build others each time it is called
    kernels.choose(model.module, task.kernels)
    return replace(model, precision=task.precision)


def lay_out(task: Task, model: FlatModel) -> Task:
    """The task with its data laid out as the model reads it: done once, where many jobs are run."""
    if not model.channels_last:
        return task
    kernels.load()
    return replace(task, train=lay_channels_last(task.train), test=lay_channels_last(task.test))
