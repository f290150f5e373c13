"""A chain: the model goes from client to client, and every hop is checked before it counts.

`run_job` depends on nothing but its arguments, so that every place that calls it gives the same bits. `Chain` is the
server's side of it alone, for engines whose hops are computed elsewhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedseq.failures import Skipped
from fedseq.gate import reason_to_reject, size
from fedseq.jobs import Job, Memory, Result, Task
from fedseq.training import Trained, train_hop
from fedseq.weights import FlatModel


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
        self, client: int, visit: int, trained: Trained, before: Tensor, after: Tensor, num_parameters: int
    ) -> bool:
        """Count a hop, unless its update is refused."""
        self.bytes_down += _nbytes(before, *self.job.message.values())
        self.bytes_up += _nbytes(after, *trained.upload.values())
        if self.job.largest_change is None:
            if not math.isfinite(trained.loss_sum) or not _all_finite(after):
                self.diverged = client
                return False
        else:
            change = size(before[:num_parameters], after[:num_parameters], trained.upload.values(), self.job.lr)
            reason = reason_to_reject(
                change, [after, *trained.upload.values()], trained.loss_sum, self.job.largest_change
            )
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
            loss_sum=self.loss_sum,
            seen=self.seen,
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            changes=tuple(self.changes),
            rejected=tuple(self.rejected),
            diverged=self.diverged,
        )


def _all_finite(vector: Tensor) -> bool:
    """The extremes of a vector with inf or nan in it are not finite; isfinite().all() costs twenty times as much."""
    return all(bool(extreme.isfinite()) for extreme in torch.aminmax(vector))


def _nbytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
