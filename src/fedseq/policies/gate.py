"""The gate: an update that is not finite, or far larger than what others send, is rejected and counts as a failed hop.

Large is measured against the median change of the hops accepted lately. Before the first round, when nothing has been
accepted yet, the clients of that round train once from the initial model, each on its own and for the measure only.
With exemplars the gate looks at more than size (see exemplar_check.py); then all clients train once.

Private rounds and federations refuse what is not finite also without a gate: that a run stopped would tell of one
client, or let one client stop it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.policies.exemplar_check import Standing, Usual, Visit, claim, measure, reason_to_refuse, usual
from fedseq.training.evaluation import class_losses
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.policy import Plan, Policy
from fedseq.training.sgd import Trained
from fedseq.training.weights import FlatModel, all_finite

REMEMBERED = 256  # accepted hops that medians are taken over
HOPELESS = 3  # rounds in a row in which every hop was rejected


class Note(NamedTuple):
    """What a chain has to know."""

    largest_change: float = math.inf
    standings: Mapping[int, Standing] = {}  # of its clients, as of the round's start
    others: Usual | None = None  # None where there is nothing to compare with: then every visit counts


class Seen(NamedTuple):
    """What a chain has shown."""

    changes: Sequence[float]  # how far each hop that was let through moved the parameters
    standings: Mapping[int, Standing]  # of the clients it looked at, refused or not
    visits: Sequence[Visit]  # those that were let through


@dataclass(frozen=True)
class GateMemory:
    """What the gate knows after a round."""

    changes: tuple[float, ...] = ()  # of the hops accepted lately
    rejected_rounds: int = 0  # rounds in a row in which nothing was let through
    standings: Mapping[int, Standing] = field(default_factory=dict)  # by client
    visits: tuple[Visit, ...] = ()  # accepted lately

    def written(self) -> dict[str, Any]:
        return {
            "changes": list(self.changes),
            "rejected_rounds": self.rejected_rounds,
            "standings": list(self.standings.items()),
            "accepted": list(self.visits),
        }

    @staticmethod
    def read(written: Mapping[str, Any]) -> "GateMemory":
        standings = {client: Standing(tuple(claimed), *sums) for client, (claimed, *sums) in written["standings"]}
        visits = tuple(Visit(*visit) for visit in written["accepted"])
        return GateMemory(tuple(written["changes"]), written["rejected_rounds"], standings, visits)


@dataclass(frozen=True)
class Gate(Policy):
    name = "gate"
    factor: float | None = None  # so many times the median change is too much; None where any size will do
    exemplars: Examples | None = None  # public ones, by which visits are judged too

    def begin(self) -> dict[str, Any]:
        return GateMemory().written()

    def rehearsal(self, plan: Callable[[bool], Plan | None]) -> list[Job]:
        planned = plan(self.exemplars is not None) if self.factor is not None else None
        alone = [(job, client) for job in (planned.jobs if planned else ()) for client in dict(job.hops)]
        return [
            replace(job, index=index, hops=((client, 0),), purpose="calibrate")
            for index, (job, client) in enumerate(alone)
        ]

    def plan(self, plan: Plan, state: Mapping[str, Any]) -> Plan:
        memory = GateMemory.read(state)
        largest = math.inf if self.factor is None or not memory.changes else self.factor * median(memory.changes)
        others = usual(memory.visits)
        return replace(
            plan,
            jobs=[
                replace(job, notes={**job.notes, self.name: Note(largest, _of_chain(job, memory.standings), others)})
                for job in plan.jobs
            ],
        )

    def watch(self, task: Task, model: FlatModel, job: Job) -> "_Watcher | None":
        """None in pre-training, where nobody depends on what a client makes of its own model."""
        return _Watcher(self, task, model, job, job.notes[self.name]) if self.name in job.notes else None

    def after(self, state: Mapping[str, Any], results: Sequence[Result], round_: int) -> dict[str, Any]:
        memory = GateMemory.read(state)
        nothing = bool(round_ and results) and not any(result.hops for result in results)
        if nothing and memory.rejected_rounds + 1 >= HOPELESS:
            raise _hopeless(results, round_)
        rejected_rounds = memory.rejected_rounds + 1 if nothing else 0
        if self.factor is None:
            return GateMemory(rejected_rounds=rejected_rounds).written()
        seen: list[Seen] = [result.learned[self.name] for result in results if self.name in result.learned]
        changes = (*memory.changes, *(change for one in seen for change in one.changes))
        visits = (*memory.visits, *(visit for one in seen for visit in one.visits))
        looked_at = {client: standing for one in seen for client, standing in one.standings.items()}
        return GateMemory(
            changes[-REMEMBERED:], rejected_rounds, {**memory.standings, **looked_at}, visits[-REMEMBERED:]
        ).written()


class _Watcher:
    """The gate along one chain."""

    def __init__(self, gate: Gate, task: Task, model: FlatModel, job: Job, note: Note):
        self.job, self.note, self.batch_size = job, note, task.batch_size
        self.num_parameters = len(model.parameters)
        self.changes: list[float] = []
        self.standings: dict[int, Standing] = {}
        self.visits: list[Visit] = []
        self.losses: Callable[[Tensor], tuple[float, ...]] | None = None  # of the exemplars, by class, under a model
        if gate.exemplars is not None:
            examples = gate.exemplars.on(task.device)
            self.losses = partial(class_losses, model, examples=examples, num_classes=task.num_classes)
            self.now = self.losses(job.start)  # after the last hop that was let through

    def refuses(self, client: int, trained: Trained, before: Tensor, after: Tensor) -> str | None:
        sent, received = after[: self.num_parameters], before[: self.num_parameters]
        change = size(received, sent, trained.upload.values(), self.job.lr)
        reason = reason_to_reject(change, [after, *trained.upload.values()], trained.loss_sum, self.note.largest_change)
        if reason is None and self.losses is not None:
            reason = self._look(client, trained, self.losses(after), float((sent - received).norm()))
        if reason is None:
            self.changes.append(change)
        return reason

    def _look(self, client: int, trained: Trained, after: tuple[float, ...], length: float) -> str | None:
        """Why the hop is refused for what it does to the exemplars; whether it is or not, it is remembered."""
        if not all(map(math.isfinite, after)):
            return "not finite on the exemplars"
        before, others = self.now, self.note.others
        known = self.standings.get(client) or self.note.standings.get(client) or Standing(claim(before, after))
        rate = self.job.lr * math.ceil(trained.seen / self.batch_size)
        visit = measure(known.claim, before, after, length, rate, trained.loss_sum / trained.seen)
        self.standings[client] = known.after(visit, others.surprise if others else 0.0)
        reason = reason_to_refuse(self.standings[client], visit, others) if others else None
        if reason is None:
            self.now = after
            self.visits.append(visit)
        return reason

    def learned(self) -> Seen:
        return Seen(self.changes, self.standings, self.visits)


def _of_chain(job: Job, standings: Mapping[int, Standing]) -> dict[int, Standing]:
    return {client: standings[client] for client, _ in job.hops if client in standings}


def _hopeless(results: Sequence[Result], round_: int) -> FedSeqError:
    reasons = sorted({hop.reason for result in results for hop in result.rejected})
    return FedSeqError(
        f"in {HOPELESS} rounds in a row, up to round {round_}, no client's update was accepted "
        f"({'; '.join(reasons[:3])}). The last model is kept. Where training diverges, lower --lr or raise "
        "--update-check-factor."
    )


def size(before: Tensor, after: Tensor, uploads: Iterable[Tensor], lr: float) -> float:
    """How far a hop moved the parameters, or would by one step along what else it uploads, whichever is more.

    What a client uploads beside its model (SCAFFOLD's change of variate) is of the size of a gradient, and moves every
    client's model by the learning rate times it.
    """
    return max(float((after - before).norm()), *(lr * float(upload.norm()) for upload in uploads), 0.0)


def reason_to_reject(change: float, sent: Sequence[Tensor], loss: float, largest: float) -> str | None:
    """`change` is the hop's size; `sent` is all that the client gives back."""
    if not (math.isfinite(change) and math.isfinite(loss) and all(map(all_finite, sent))):
        return "not finite"
    if change > largest:
        return f"change {change:.3g} is more than {largest:.3g}"
    return None
