"""A chain: the model goes from client to client, and every hop is checked before it counts.

`run_job` depends on nothing but its arguments, so that every place that calls it gives the same bits. `Chain` is the
server's side of it alone, for engines whose hops are computed elsewhere.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from fedseq.training.jobs import Job, Memory, Result, Skipped, Stopped, Task, never
from fedseq.training.policy import Train, Watcher
from fedseq.training.sgd import Trained, train_hop
from fedseq.training.weights import FlatModel, all_finite


def run_job(
    task: Task, model: FlatModel, job: Job, stopped: Callable[[], bool] = never, *, lasting: bool = True
) -> Result:
    """Train the model client after client along the chain.

    A result that need not last has the model's own vector as its end, which is good until the model is used again.
    """
    train: Train = train_hop
    for policy in task.policies:
        train = policy.on_client(train)
    chain = Chain.begin(job, {client: dict(kept) for client, kept in job.memory.items()}, task, model)
    model.load(job.start)
    for client, visit in job.hops:
        if stopped():
            raise Stopped
        before = model.vector.clone() if chain.hops else job.start  # which is what the model holds until a hop counts
        request = replace(job, message=chain.message)
        trained = train(task, model, request, client, visit, chain.memory.get(client, {}), before)
        if chain.take(client, visit, trained, before, model.vector):
            continue
        if chain.diverged is not None:
            break
        model.load(before)
    return chain.result(model.vector.clone() if lasting else model.vector, task.clients)


@dataclass
class Chain:
    """What the server knows of a chain while its hops come in, wherever they are computed."""

    job: Job
    memory: dict[int, Memory]  # of its clients, as of the last hop that counts
    message: Mapping[str, Tensor]  # for the next client: the server's, and what the last one handed on
    watchers: Mapping[str, Watcher] = field(default_factory=dict)  # of policies that may refuse a hop, by their names
    uploads: dict[str, Tensor] = field(default_factory=dict)
    hops: list[tuple[int, int]] = field(default_factory=list)
    rejected: list[Skipped] = field(default_factory=list)
    loss_sum: float = 0.0
    seen: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    diverged: int | None = None

    @staticmethod
    def begin(job: Job, memory: dict[int, Memory], task: Task, model: FlatModel) -> "Chain":
        """Watchers may compute with the model: other weights than before are in it then."""
        watchers = {policy.name: policy.watch(task, model, job) for policy in task.policies}
        return Chain(job, memory, job.message, {name: found for name, found in watchers.items() if found is not None})

    def take(self, client: int, visit: int, trained: Trained, before: Tensor, after: Tensor) -> bool:
        """Count a hop, unless its update is refused."""
        self.bytes_down += sum(tensor.nbytes for tensor in (before, *self.message.values()))
        self.bytes_up += sum(tensor.nbytes for tensor in (after, *trained.upload.values()))
        for watcher in self.watchers.values():
            if reason := watcher.refuses(client, trained, before, after):
                self.rejected.append(Skipped(client, visit, reason))
                return False
        if not math.isfinite(trained.loss_sum) or not all_finite(after):
            self.diverged = client
            return False
        self.memory[client] = trained.memory
        for name, upload in trained.upload.items():
            summed = name in self.uploads and name not in self.job.algorithm.handed_on
            self.uploads[name] = self.uploads[name] + upload if summed else upload
        self.message = {**self.message, **{name: self.uploads[name] for name in self.job.algorithm.handed_on}}
        self.hops.append((client, visit))
        self.loss_sum += trained.loss_sum
        self.seen += trained.seen
        return True

    def result(self, end: Tensor, clients: Sequence[np.ndarray]) -> Result:
        visited = {client for client, _ in self.hops}
        kept = {client: self.memory.get(client, {}) for client in sorted(visited)}
        return Result(
            index=self.job.index,
            start=self.job.start,
            end=end,
            examples=sum(len(clients[client]) for client in visited),
            uploads=self.uploads,
            memory={client: memory for client, memory in kept.items() if memory or self.job.memory.get(client)},
            hops=tuple(self.hops),
            loss_sum=self.loss_sum,
            seen=self.seen,
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            rejected=tuple(self.rejected),
            learned={name: watcher.learned() for name, watcher in self.watchers.items()},
            diverged=self.diverged,
        )
