"""Chains over a network: each moves on as soon as its own client has answered, whatever the others do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from flwr.app import Message, RecordDict
from torch import Tensor

from fedseq.algorithms.base import FEDAVG, Hop
from fedseq.engines.serial import Evaluated, SerialEngine
from fedseq.flower.messages import TRAIN, Order, Refused, Version, pack_order, unpack_answer
from fedseq.flower.nodes import Post, Roster
from fedseq.policies.gate import Gate, Note
from fedseq.training.chains import Chain
from fedseq.training.evaluation import Evaluation
from fedseq.training.jobs import Job, Memory, Result, Skipped, Task, never
from fedseq.training.sgd import Trained

VERSION = "version"  # clients keep their memory; the server keeps which version of it counts


class FlowerEngine:
    """Clients train at home; the server checks what they send, and evaluates on its own test set."""

    def __init__(self, task: Task, roster: Roster, run: str, deadline: float, wait: float):
        if not any(isinstance(policy, Gate) for policy in task.policies):
            task = replace(task, policies=(*task.policies, Gate()))
        self.task = task
        self.roster = roster
        self.run_name = run
        self.deadline = deadline
        self.wait = wait
        self.here = SerialEngine(task)
        self.num_parameters = len(self.here.model.parameters)

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        self.roster.wait_for_any({client for job in jobs for client, _ in job.hops}, self.wait)
        post: Post[_ChainUnderWay] = Post(self.roster.grid)
        for job in jobs:
            yield from self._go_on(_ChainUnderWay.begin(job, self.here), post)
        while (post.waiting or post.unsent) and not stopped():
            self.roster.listen()
            for under_way, answer in post.collect():
                self._take(under_way, answer)
                yield from self._go_on(under_way, post)

    def begin_evaluation(self, weights: Tensor) -> Evaluated:
        return self.here.begin_evaluation(weights)

    def evaluate(self, weights: Tensor) -> Evaluation:
        return self.here.evaluate(weights)

    def close(self) -> None:
        pass

    def _go_on(self, under_way: "_ChainUnderWay", post: "Post[_ChainUnderWay]") -> Iterator[Result]:
        """Send the model to the chain's next client that is there; the result, if there is none left."""
        while under_way.ahead:
            client, _ = under_way.ahead[0]
            node = self.roster.node(client)
            if node is not None:
                content = pack_order(self._order(under_way))
                message = Message(content, node, TRAIN, ttl=self.deadline, group_id=str(under_way.chain.job.round))
                post.send(under_way, message, self.deadline)
                return
            under_way.skip("its node is not connected")
        yield under_way.chain.result(under_way.model, self.task.clients)

    def _order(self, under_way: "_ChainUnderWay") -> Order:
        job = under_way.chain.job
        client, visits = under_way.ahead[0]
        return Order(
            run=self.run_name,
            client=client,
            round=job.round,
            visits=visits,
            purpose=job.purpose,
            plain=job.algorithm is FEDAVG,
            lr=job.lr,
            epochs=job.epochs,
            memory=_version(under_way.chain.memory.get(client, {})),
            start=under_way.model,
            message=under_way.chain.message,
            facts=self.roster.facts,
        )

    def _take(self, under_way: "_ChainUnderWay", answer: RecordDict | Refused) -> None:
        """Count the hop, unless it failed or its answer is refused: then the chain goes on from the model before."""
        job, (client, visits) = under_way.chain.job, under_way.ahead[0]
        try:
            if isinstance(answer, Refused):
                raise answer
            examples = self.roster.sizes[client]
            upload = expected_upload(job, self.num_parameters, bool(self.task.momentum))
            read = unpack_answer(answer, under_way.model, upload, examples)
        except Refused as refusal:
            under_way.skip(str(refusal))
            return
        memory: Memory = {VERSION: torch.tensor([job.round, visits[-1]])} if read.remembers else {}
        trained = Trained(read.upload, memory, read.loss_sum, examples * job.epochs * len(visits))
        if under_way.chain.take(client, visits[-1], trained, under_way.model, read.weights):
            under_way.model = read.weights
        under_way.ahead.pop(0)


@dataclass(eq=False)
class _ChainUnderWay:
    """A chain under way."""

    chain: Chain
    model: Tensor  # of the last hop that counts
    ahead: list[tuple[int, tuple[int, ...]]]  # clients still to be visited, each with its visits in a row

    @staticmethod
    def begin(job: Job, here: SerialEngine) -> "_ChainUnderWay":
        """Pre-training's epochs, which are visits to the same client in a row, are one message."""
        stops: list[tuple[int, tuple[int, ...]]] = [(client, (visit,)) for client, visit in job.hops]
        if job.purpose == "pretrain":
            stops = [
                (client, tuple(visit for _, visit in all_)) for client, all_ in groupby(job.hops, lambda hop: hop[0])
            ]
        chain = Chain.begin(guarded(job), dict(job.memory), here.task, here.model)
        return _ChainUnderWay(chain, job.start, stops)

    def skip(self, reason: str) -> None:
        client, visits = self.ahead.pop(0)
        self.chain.rejected.append(Skipped(client, visits[-1], reason))


def guarded(job: Job) -> Job:
    """Also in pre-training a client that sends what is not finite is passed over; on one machine it would not count."""
    return job if Gate.name in job.notes else replace(job, notes={**job.notes, Gate.name: Note()})


def expected_upload(job: Job, num_parameters: int, momentum: bool = False) -> dict[str, Tensor]:
    """What the algorithm's clients upload beside their model: found out by letting it finish a visit of zeros."""
    zeros = torch.zeros(num_parameters, device=job.start.device)
    hop = Hop(
        start=zeros,
        weights=zeros,
        message={name: torch.zeros_like(sent) for name, sent in job.message.items()},
        memory={},
        lr=1.0,
        gradient_at_start=lambda: zeros,
        velocity=zeros.clone() if momentum else None,
        steps=1,
    )
    return dict(job.algorithm.finish(hop)[0])


def _version(memory: Memory) -> Version | None:
    if VERSION not in memory:
        return None
    round_, visit = memory[VERSION].tolist()
    return round_, visit
