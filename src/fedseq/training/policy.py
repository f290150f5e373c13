"""A policy is what only some runs do: the hooks of a round, each of which does nothing unless a policy has its own.

Policies are frozen and pickled: the server calls some hooks, the workers others. What a policy knows from round to
round is its state, which the hooks are given and return: plain data that JSON holds, or a dict of such with tensors
among its values. It is kept in the snapshot under the policy's name, and so in checkpoints.

    begin          its state before the first round
    rehearsal      jobs to run before the first round, to learn from
    plan           the next round otherwise than planned, or none at all
    before         right before these jobs are run
    on_client      wrapped around the training of a client's visit, wherever that is computed
    watch          looks at every visit of a chain, and may refuse what it did
    collect        the results that count
    merge          what the server's algorithm sees of them
    after          what a round teaches
    record         what is written about a round
    judge          after an evaluation: whether the run ends with it

The policies of a run are called in one order, in which each finds what those before it made. Ours are in `policies/`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from fedseq.training.jobs import Job, Result, Task

if TYPE_CHECKING:
    from fedseq.training.sgd import Trained
    from fedseq.training.weights import FlatModel

Train = Callable[..., "Trained"]  # of (task, model, job, client, visit, memory, the model's vector as it is before)


@dataclass(frozen=True)
class Plan:
    """What a round is going to do."""

    round: int
    jobs: Sequence[Job]  # by their index; one whose visits all fail has no hops left, and is not run
    drawn: Sequence[int]  # units; the place of each is its slot
    skipped: Sequence[Mapping[str, Any]] = field(default=())  # visits that are known to fail: unit, client, reason


class Watcher(Protocol):
    """Goes along one chain."""

    def refuses(self, client: int, trained: "Trained", before: Tensor, after: Tensor) -> str | None:
        """Why this visit does not count; then the chain goes on from `before`."""
        ...

    def learned(self) -> Any:
        """What the server is to know, in `Result.learned`."""
        ...


class Policy:
    name: ClassVar[str]

    def begin(self) -> Any:
        return None

    def rehearsal(self, plan: Callable[[bool], Plan | None]) -> list[Job]:
        """`plan` gives the plan of the first round, for the units that are drawn or (True) for all."""
        return []

    def plan(self, plan: Plan, state: Any) -> Plan | None:
        return plan

    def before(self, state: Any, jobs: Sequence[Job]) -> Any:
        return state

    def on_client(self, train: Train) -> Train:
        return train

    def watch(self, task: Task, model: "FlatModel", job: Job) -> Watcher | None:
        return None

    def collect(self, results: Sequence[Result], plan: Plan) -> Sequence[Result]:
        return results

    def merge(self, results: Sequence[Result], plan: Plan) -> Sequence[Result]:
        return results

    def after(self, state: Any, results: Sequence[Result], round_: int) -> Any:
        """`round_` is 0 for the results of a rehearsal."""
        return state

    def record(self, state: Any, round_: int) -> dict[str, Any]:
        return {}

    def judge(self, state: Any, record: Mapping[str, Any], weights: Tensor) -> tuple[Any, bool]:
        """The evaluated weights are the server's model."""
        return state, False

    @property
    def changes_training(self) -> bool:
        return type(self).on_client is not Policy.on_client

    @property
    def acts_on_clients(self) -> bool:
        """True if workers need to know it."""
        return self.changes_training or type(self).watch is not Policy.watch
