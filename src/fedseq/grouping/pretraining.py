"""Pre-training: every client trains the same theta_0 on its own data, and what its model then tells about that data.

Results are kept in files as they arrive, so that an interrupted pre-training goes on with the clients not done yet and
trying another metric or method does not pre-train again. An epoch is a visit with its own random stream; so ten epochs
are the same whether trained at once or as five and five.
"""

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from fedseq.algorithms import fedavg
from fedseq.basics.errors import FedSeqError
from fedseq.basics.identity import own_layers, plain
from fedseq.grouping import CONFIDENCES, Reduction, reduce_weights
from fedseq.options.tables import APPROXIMATORS
from fedseq.training.evaluation import predict
from fedseq.training.examples import Examples
from fedseq.training.jobs import Engine, Job, Task
from fedseq.training.reporter import QUIET, Reporter
from fedseq.training.sgd import one_thread
from fedseq.training.weights import FlatModel

JOBS_AT_ONCE = 64  # bounds the memory of start weights and of results waiting to be read


@dataclass(frozen=True)
class Pretrained:
    """What is known of all clients after some epochs. A client that diverged, or has no example, is a row of NaNs."""

    confidence: dict[str, np.ndarray]  # variant: [clients, classes]; empty without exemplars
    weights: np.ndarray | None  # [clients, weights], on disk; None where nobody asked for them
    model: FlatModel


def pretrain(
    task: Task,
    model: FlatModel,
    engine: Engine,
    theta: Tensor,
    epochs: Sequence[int],
    lr: float,
    exemplars: Examples | None,
    folder: Path,
    keep_weights: bool,
    reporter: Reporter = QUIET,
) -> dict[int, Pretrained]:
    """Pre-train every client for each of these numbers of epochs; the longer ones continue the shorter ones."""
    keep_weights = keep_weights or len(epochs) > 1
    exemplars = exemplars.on(task.device) if exemplars is not None else None
    home = folder / _key(task, model, theta, lr, exemplars)
    products: dict[int, Pretrained] = {}
    before = 0
    for count in sorted(set(epochs)):
        earlier = products[before].weights if before else None
        starts = _Starts(theta, earlier)
        products[count] = _pretrain_to(
            task,
            engine,
            model,
            starts,
            (before, count),
            lr,
            exemplars,
            home / f"{count}-epochs",
            keep_weights,
            reporter,
        )
        before = count
    return products


@dataclass(frozen=True)
class _Starts:
    """theta_0, or each client's own weights after fewer epochs."""

    theta: Tensor
    earlier: np.ndarray | None

    def of(self, client: int) -> Tensor:
        if self.earlier is None:
            return self.theta
        return torch.from_numpy(np.array(self.earlier[client])).to(self.theta.device)


def _pretrain_to(
    task: Task,
    engine: Engine,
    model: FlatModel,
    starts: _Starts,
    span: tuple[int, int],
    lr: float,
    exemplars: Examples | None,
    folder: Path,
    keep_weights: bool,
    reporter: Reporter,
) -> Pretrained:
    folder.mkdir(parents=True, exist_ok=True)
    clients = len(task.clients)
    variants = CONFIDENCES if exemplars is not None else {}
    confidence = {name: _rows(folder / f"{name}.npy", clients, task.num_classes) for name in variants}
    weights = _rows(folder / "weights.npy", clients, len(model.vector)) if keep_weights else None
    sums = _rows(folder / ("done-with-weights.npy" if keep_weights else "done.npy"), clients, 1, dtype=np.uint64)
    kept = [*confidence.values(), *([] if weights is None else [weights])]
    done = {client for client in range(clients) if sums[client, 0] and sums[client, 0] == _row_sum(client, kept)}
    what = f"pre-training, {span[1]} epochs"
    todo = [client for client in range(clients) if client not in done and len(task.clients[client])]
    for first in range(0, len(todo), JOBS_AT_ONCE):
        for client, end, arrived in _train(engine, todo[first : first + JOBS_AT_ONCE], starts, span, lr):
            for name, rows in confidence.items():
                assert exemplars is not None
                rows[client] = variants[name](_logits(model, end, exemplars), exemplars.y.cpu().numpy())
            if weights is not None:
                weights[client] = end.cpu().numpy()
            if arrived:
                sums[client] = _row_sum(client, kept)
                done.add(client)
            reporter.stage(len(done), clients, what)
    return Pretrained({name: np.array(rows) for name, rows in confidence.items()}, weights, model)


def _row_sum(client: int, arrays: Sequence[np.ndarray]) -> int:
    """A checksum of what is kept of a client, never 0: a row that is not what was written is made anew."""
    digest = hashlib.blake2b(str(client).encode(), digest_size=8)
    for rows in arrays:
        digest.update(np.ascontiguousarray(rows[client]).data)
    return int.from_bytes(digest.digest()) | 1


def _train(
    engine: Engine, clients: Sequence[int], starts: _Starts, span: tuple[int, int], lr: float
) -> Iterator[tuple[int, Tensor, bool]]:
    """Each client's weights, as they arrive; NaNs if they are no longer finite, or did not arrive."""
    jobs = [
        Job(
            index=client,
            unit=client,
            round=0,
            hops=tuple((client, visit) for visit in range(*span)),
            start=starts.of(client),
            algorithm=fedavg(),
            lr=lr,
            purpose="pretrain",
        )
        for client in clients
    ]
    for result in engine.run(jobs):
        arrived = bool(result.hops) or result.diverged is not None
        trained = result.hops and result.diverged is None
        yield result.index, result.end if trained else torch.full_like(result.end, torch.nan), arrived


def _logits(model: FlatModel, weights: Tensor, exemplars: Examples) -> np.ndarray:
    with one_thread():
        return np.concatenate([output.cpu().numpy() for output, _ in predict(model, weights, exemplars)])


def _rows(path: Path, rows: int, columns: int, dtype: type = np.float32) -> np.ndarray:
    """An array in a file; made if it is not there in this shape, read on if it is."""
    head = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    np.lib.format.write_array_header_1_0(head, {**description, "shape": (rows, columns)})
    size = head.tell() + rows * columns * np.dtype(dtype).itemsize
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(head.tell()) == head.getvalue() and path.stat().st_size == size:  # nothing else is understood
            return np.lib.format.open_memmap(path, mode="r+")
    _reserve(path, rows * columns * np.dtype(dtype).itemsize)
    made = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows, columns))
    made[:] = np.nan if np.issubdtype(dtype, np.floating) else 0
    return made


def _reserve(path: Path, size: int) -> None:
    """A full disk is an error here; in a mapped file it would kill the process."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size + 4096)


def _key(task: Task, model: FlatModel, theta: Tensor, lr: float, exemplars: Examples | None) -> str:
    """A name for everything that a client's pre-trained weights depend on, but the number of epochs."""
    digest = hashlib.sha256()
    sgd = (lr, task.batch_size, task.momentum, task.weight_decay, task.max_grad_norm, task.augment, task.seed)
    if changing := [plain(policy) for policy in task.policies if policy.changes_training]:
        digest.update(json.dumps(changing).encode())
    digest.update(json.dumps([*sgd, task.kernels, plain(task.loss), own_layers(model.module)]).encode())
    digest.update(str(model.module).encode())
    if task.precision != "float32":
        digest.update(task.precision.encode())
    digest.update(task.fingerprint.encode())
    for tensor in (theta, task.frozen, *((exemplars.x, exemplars.y) if exemplars else ())):
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()[:16]


def classifier_layers(model: FlatModel) -> list[slice]:
    """Where the weights of the fully connected layers lie in the vector, in the order of the module."""
    found = []
    for name, layer in model.module.named_modules():
        if isinstance(layer, nn.Linear):
            view = model.views.get(f"{name}.weight" if name else "weight")
            if view is not None:  # the second of two tied layers has no weights of its own
                found.append(slice(view.storage_offset(), view.storage_offset() + view.numel()))
    if not found:
        raise FedSeqError(
            f"model {type(model.module).__name__} has no fully connected layer (nn.Linear) for a classifier "
            "approximator to look at. Use --approximator confidence."
        )
    return found


def estimate(approximator: str, variant: str, pretrained: Pretrained) -> tuple[np.ndarray, Reduction | None]:
    """One row per client: its confidence vector, or its classifier's weights after PCA."""
    layers = APPROXIMATORS[approximator].layers
    if layers is None:
        if not pretrained.confidence:
            raise FedSeqError("the confidence approximator needs exemplars of every class. Use --grouping random.")
        return pretrained.confidence[variant], None
    assert pretrained.weights is not None
    rows = np.concatenate([pretrained.weights[:, part] for part in classifier_layers(pretrained.model)[layers]], axis=1)
    reduction = reduce_weights(rows)
    return reduction.vectors, reduction


def similarity(pretrained: Pretrained, columns_at_once: int = 8192) -> np.ndarray:
    """D: cosine between the parameters of every two clients."""
    assert pretrained.weights is not None
    parameters = pretrained.weights[:, : len(pretrained.model.parameters)]
    gram = np.zeros((len(parameters), len(parameters)))
    with threadpool_limits(1):  # the same sums on any number of cores
        for first in range(0, parameters.shape[1], columns_at_once):
            block = parameters[:, first : first + columns_at_once].astype(np.float64)
            gram += block @ block.T
    norms = np.sqrt(np.diag(gram))
    return gram / np.outer(norms, norms)
