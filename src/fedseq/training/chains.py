"""A chain: the model goes from client to client, and every hop is checked before it counts.

`run_job` depends on nothing but its arguments, so that every place that calls it gives the same bits. `Chain` is the
server's side of it alone, for engines whose hops are computed elsewhere.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from fedseq.simulation.attacks import Attack
from fedseq.training.evaluation import class_losses
from fedseq.training.failures import Skipped
from fedseq.training.gate import reason_to_reject, size
from fedseq.training.jobs import Job, Memory, Result, Stopped, Task, never
from fedseq.training.sgd import Trained, train_hop
from fedseq.training.standing import Standing, Visit, claim, measure, reason_to_refuse
from fedseq.training.weights import FlatModel, all_finite


def run_job(
    task: Task, model: FlatModel, job: Job, stopped: Callable[[], bool] = never, *, lasting: bool = True
) -> Result:
    """Train the model client after client along the chain.

    A result that need not last has the model's own vector as its end, which is good until the model is used again.
    """
    chain = Chain.begin(job, {client: dict(kept) for client, kept in job.memory.items()}, task, model)
    model.load(job.start)
    for client, visit in job.hops:
        if stopped():
            raise Stopped
        before = model.vector.clone() if chain.hops else job.start  # which is what the model holds until a hop counts
        request, shown = replace(job, message=chain.message), _as_shown(task, job, client)
        trained = train_hop(shown, model, request, client, visit, chain.memory.get(client, {}), before)
        if client in job.attackers:
            trained = _falsified(job.attackers[client], trained, before, model.vector)
        if chain.take(client, visit, trained, before, model.vector, len(model.parameters)):
            continue
        if chain.diverged is not None:
            break
        model.load(before)
    return chain.result(model.vector.clone() if lasting else model.vector, task.clients)


def _as_shown(task: Task, job: Job, client: int) -> Task:
    """What the client trains on: attackers may behave at first, and have false labels later."""
    attack = job.attackers.get(client)
    if attack is None or task.late_labels is None or job.round <= attack.honest_rounds:
        return task
    return replace(task, train=replace(task.train, y=task.late_labels))


def _falsified(attack: Attack, trained: Trained, before: Tensor, after: Tensor) -> Trained:
    """What an attacker sends; `after` is changed in place."""
    if attack.factor != 1:
        after.copy_(before + attack.factor * (after - before))
    return trained if attack.loss is None else replace(trained, loss_sum=attack.loss * trained.seen)


@dataclass
class Chain:
    """What the server knows of a chain while its hops come in, wherever they are computed."""

    job: Job
    memory: dict[int, Memory]  # of its clients, as of the last hop that counts
    message: Mapping[str, Tensor]  # for the next client: the server's, and what the last one handed on
    uploads: dict[str, Tensor] = field(default_factory=dict)
    hops: list[tuple[int, int]] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    rejected: list[Skipped] = field(default_factory=list)
    loss_sum: float = 0.0
    seen: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    diverged: int | None = None
    losses: Callable[[Tensor], tuple[float, ...]] | None = None  # of the exemplars, by class, under a model
    now: tuple[float, ...] = ()  # these losses after the last hop that counts
    batch_size: int = 1
    standings: dict[int, Standing] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)

    @staticmethod
    def begin(job: Job, memory: dict[int, Memory], task: Task, model: FlatModel) -> "Chain":
        """`model` computes what the gate has to know of the exemplars; other weights than before are in it then."""
        if job.watch is None or task.exemplars is None:
            return Chain(job, memory, job.message)
        losses = partial(class_losses, model, examples=task.exemplars, num_classes=task.num_classes)
        return Chain(job, memory, job.message, losses=losses, now=losses(job.start), batch_size=task.batch_size)

    def take(
        self, client: int, visit: int, trained: Trained, before: Tensor, after: Tensor, num_parameters: int
    ) -> bool:
        """Count a hop, unless its update is refused."""
        self.bytes_down += sum(tensor.nbytes for tensor in (before, *self.message.values()))
        self.bytes_up += sum(tensor.nbytes for tensor in (after, *trained.upload.values()))
        if self.job.largest_change is None:
            if not math.isfinite(trained.loss_sum) or not all_finite(after):
                self.diverged = client
                return False
        else:
            change = size(before[:num_parameters], after[:num_parameters], trained.upload.values(), self.job.lr)
            reason = reason_to_reject(
                change, [after, *trained.upload.values()], trained.loss_sum, self.job.largest_change
            )
            if reason is None and self.losses is not None:
                length = float((after[:num_parameters] - before[:num_parameters]).norm())
                reason = self._look(client, trained, self.losses(after), length)
            if reason is not None:
                self.rejected.append(Skipped(client, visit, reason))
                return False
            self.changes.append(change)
        self.memory[client] = trained.memory
        for name, upload in trained.upload.items():
            summed = name in self.uploads and name not in self.job.algorithm.handed_on
            self.uploads[name] = self.uploads[name] + upload if summed else upload
        self.message = {**self.message, **{name: self.uploads[name] for name in self.job.algorithm.handed_on}}
        self.hops.append((client, visit))
        self.loss_sum += trained.loss_sum
        self.seen += trained.seen
        return True

    def _look(self, client: int, trained: Trained, after: tuple[float, ...], length: float) -> str | None:
        """Why the hop is refused for what it does to the exemplars; whether it is or not, it is remembered."""
        if not all(map(math.isfinite, after)):
            return "not finite on the exemplars"
        assert self.job.watch is not None
        before, (earlier, others) = self.now, self.job.watch
        known = self.standings.get(client) or earlier.get(client) or Standing(claim(before, after))
        rate = self.job.lr * math.ceil(trained.seen / self.batch_size)
        visit = measure(known.claim, before, after, length, rate, trained.loss_sum / trained.seen)
        self.standings[client] = known.after(visit, others.surprise if others else 0.0)
        reason = reason_to_refuse(self.standings[client], visit, others) if others else None
        if reason is None:
            self.now = after
            self.visits.append(visit)
        return reason

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
            changes=tuple(self.changes),
            rejected=tuple(self.rejected),
            standings=self.standings,
            visits=tuple(self.visits),
            diverged=self.diverged,
        )
