"""The round loop: draw, chain, run, merge, evaluate, record. There is no other.

What every run does is here. What only some runs do is in policies, each called where its hook stands.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from torch import Tensor

from fedseq.algorithms.base import Algorithm, Setting, State, aggregate, models_to_evaluate, starts, tensors_of
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.runs.checkpoints import Snapshot
from fedseq.training.evaluation import client_spread
from fedseq.training.jobs import Engine, Job, Memory, PendingEvaluation, Result, chain_hops, never
from fedseq.training.policy import Plan, Policy
from fedseq.training.weights import all_finite

Record = dict[str, Any]
Unit = tuple[int, ...]


@dataclass(frozen=True)
class Setup:
    """What the rounds need and never changes."""

    config: Config
    algorithm: Algorithm
    units: Sequence[Unit]  # clients, or superclients
    setting: Setting
    policies: Sequence[Policy] = ()


@dataclass(frozen=True)
class Round:
    """A complete round, evaluated where it is to be."""

    snapshot: Snapshot
    record: Record  # as metrics.jsonl has it
    seconds: Record
    last: bool


def rounds(
    setup: Setup,
    engine: Engine,
    snapshot: Snapshot,
    stopped: Callable[[], bool] = never,
    settle: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
) -> Iterator[Round]:
    """Round after round. Soon after `stopped` it ends, without the round that is under way.

    While workers evaluate one round they train the next, which is dropped if the run turns out to end before it.
    `settle` may put clients' memory elsewhere.
    """
    if snapshot.round == 0:
        snapshot = rehearse(setup, engine, snapshot, stopped)
    planned, ahead, last = plan(setup, snapshot), None, False
    while planned is not None and not last:
        trained = ahead or train(setup, engine, snapshot, planned, stopped)
        if stopped():
            return
        began = time.perf_counter()
        results = trained.results
        for policy in setup.policies:
            results = policy.collect(results, planned)
        snapshot = advance(setup, snapshot, planned, results, trained.kept)
        snapshot = settle(snapshot) if snapshot.memory else snapshot
        record = record_of(setup, snapshot, planned, results)
        planned = plan(setup, snapshot)
        merged = time.perf_counter()
        evaluation = begin_evaluation(setup, engine, snapshot, last=planned is None)
        begun = time.perf_counter()
        ahead = train(setup, engine, snapshot, planned, stopped) if planned and not evaluation.ready else None
        resumed = time.perf_counter()
        snapshot, last = finish_evaluation(setup, snapshot, record, evaluation, stopped)
        seconds = {
            "round": snapshot.round,
            "train": trained.seconds,
            "evaluate": begun - merged + time.perf_counter() - resumed,
            "overhead": merged - began,  # merging, and planning what follows
        }
        last = last or planned is None
        yield Round(snapshot, record, seconds, last)


def plan(setup: Setup, snapshot: Snapshot, every_unit: bool = False) -> Plan | None:
    """The next round: a chain of clients for each unit drawn, as the policies have it. None after the last round."""
    config, algorithm, round_ = setup.config, setup.algorithm, snapshot.round + 1
    if round_ > config.rounds:
        return None
    drawn = list(range(len(setup.units))) if every_unit else draw(len(setup.units), setup.setting, config.seed, round_)
    message, jobs = tensors_of(algorithm, "message", snapshot.state), []
    for index, start in enumerate(starts(algorithm, snapshot.state, len(drawn))):
        clients = setup.units[drawn[index]]
        hops = chain_hops(clients, config.superclient_epochs, config.seed, round_)
        # What is stored reads like the memory that it stands for.
        memory = {client: cast(Memory, snapshot.memory[client]) for client in clients if client in snapshot.memory}
        jobs.append(
            Job(
                index=index, unit=drawn[index], round=round_, hops=hops, start=start, algorithm=algorithm,
                lr=learning_rate(config, round_), epochs=config.local_epochs, message=message, memory=memory,
            )
        )  # fmt: skip
    planned: Plan | None = Plan(round_, jobs, drawn)
    for policy in setup.policies:
        planned = policy.plan(planned, snapshot.kept[policy.name]) if planned else None
    return planned


def draw(num_units: int, setting: Setting, seed: int, round_: int) -> list[int]:
    """The units of a round, without replacement, in random order."""
    chosen = seeds.generator(seed, "draw", round_).choice(num_units, setting.units_per_round, replace=False)
    return [int(unit) for unit in chosen]


def learning_rate(config: Config, round_: int) -> float:
    past = round_ - 1
    factors = {
        "constant": 1.0,
        "exponential": config.lr_decay**past,
        "linear": _from_one_to(config.lr_final, 1 - past / config.rounds),
        "cosine": _from_one_to(config.lr_final, 0.5 * (1 + math.cos(math.pi * past / config.rounds))),
    }
    rate = config.lr * factors[config.lr_scheduler]
    return rate * round_ / config.warmup_rounds if round_ < config.warmup_rounds else rate


def _from_one_to(final: float, left: float) -> float:
    """1 where all is left, `final` where nothing is."""
    return final + (1 - final) * left


@dataclass(frozen=True)
class Work:
    results: Sequence[Result]  # in the order of their jobs
    kept: Mapping[str, Any]  # states that policies changed before the jobs were run
    seconds: float


def train(setup: Setup, engine: Engine, snapshot: Snapshot, planned: Plan, stopped: Callable[[], bool]) -> Work:
    jobs = [job for job in planned.jobs if job.hops]
    kept = before_jobs(setup, snapshot, jobs)
    began = time.perf_counter()
    results = sorted(engine.run(jobs, stopped), key=lambda result: result.index)
    return Work(results, kept, time.perf_counter() - began)


def before_jobs(setup: Setup, snapshot: Snapshot, jobs: Sequence[Job]) -> dict[str, Any]:
    known = snapshot.kept
    states = {policy.name: policy.before(known[policy.name], jobs) for policy in setup.policies}
    return {name: state for name, state in states.items() if state is not known[name]}


def advance(
    setup: Setup, snapshot: Snapshot, planned: Plan, results: Sequence[Result], changed_before: Mapping[str, Any]
) -> Snapshot:
    """The round is committed here: model, clients' memory and what policies learned."""
    refuse_divergence(planned, results)
    kept = {**snapshot.kept, **changed_before}
    for policy in setup.policies:
        kept[policy.name] = policy.after(kept[policy.name], results, planned.round)
    merged = results
    for policy in setup.policies:
        merged = policy.merge(merged, planned)
    state = aggregate(setup.algorithm, snapshot.state, merged, setup.setting, planned.round)
    if not all(map(all_finite, state.values())):
        raise FedSeqError(
            f"training diverged in round {planned.round}: the clients' models are finite, and the server's step made "
            f"of them is not. The model of round {planned.round - 1} is kept. Lower --server-lr or --lr."
        )
    new = {client: memory for result in results for client, memory in result.memory.items()}
    memory = {client: kept for client, kept in {**snapshot.memory, **new}.items() if kept}  # some forget
    changed = {**snapshot.changed, **dict.fromkeys(new, planned.round)}
    return Snapshot(planned.round, state, memory, {client: changed[client] for client in memory}, kept)


def refuse_divergence(planned: Plan, results: Sequence[Result]) -> None:
    units = {job.index: job.unit for job in planned.jobs}
    for result in results:
        if result.diverged is not None:
            raise FedSeqError(
                f"training diverged in round {planned.round}, unit {units[result.index]}, client {result.diverged}: "
                f"loss or weights are no longer finite. The model of round {planned.round - 1} is kept. Lower --lr, or "
                "set --max-grad-norm or --update-check size."
            )


@dataclass(frozen=True)
class Evaluations:
    """Of a round's models, under way."""

    models: Mapping[str, Tensor]  # by name; "" is the server's
    pending: Mapping[str, PendingEvaluation]

    @property
    def ready(self) -> bool:
        return all(one.ready for one in self.pending.values())


def begin_evaluation(setup: Setup, engine: Engine, snapshot: Snapshot, last: bool) -> Evaluations:
    asked = last or snapshot.round % setup.config.eval_every == 0
    models = models_to_evaluate(setup.algorithm, snapshot.state, setup.setting) if asked else {}
    return Evaluations(models, {name: engine.begin_evaluation(weights) for name, weights in models.items()})


def finish_evaluation(
    setup: Setup, snapshot: Snapshot, record: Record, evaluation: Evaluations, stopped: Callable[[], bool]
) -> tuple[Snapshot, bool]:
    """Fills in the record; whether the run ends with this round is what policies make of it."""
    for name, pending in evaluation.pending.items():
        found = pending.result(stopped)
        if found.undefined:
            raise FedSeqError(
                f"training diverged in round {snapshot.round}: for {found.undefined} of the test examples the new "
                f"model's outputs are not numbers (NaN). The model of round {snapshot.round - 1} is kept. Lower --lr "
                "or --server-lr, or set --max-grad-norm."
            )
        if name:
            record[f"accuracy_{name}"] = found.accuracy
        else:
            record.update(accuracy=found.accuracy, loss=finite(found.loss))
            record["per_class_accuracy"] = list(found.per_class)
            record.update(client_spread(found.per_client) if found.per_client else {})
    if not evaluation.models:
        return snapshot, False
    judged = {
        policy.name: policy.judge(snapshot.kept[policy.name], record, evaluation.models[""])
        for policy in setup.policies
    }
    kept = {name: state for name, (state, _) in judged.items()}
    return replace(snapshot, kept=kept), any(ends for _, ends in judged.values())


def record_of(setup: Setup, snapshot: Snapshot, planned: Plan, results: Sequence[Result]) -> Record:
    examples = sum(result.examples for result in results)
    units = {job.index: job.unit for job in planned.jobs}
    refused = [
        {"unit": units[result.index], "client": hop.client, "reason": hop.reason}
        for result in results
        for hop in result.rejected
    ]
    record = {
        "round": snapshot.round,
        "accuracy": None,
        "loss": None,
        "train_loss": finite(sum(r.loss * r.examples for r in results) / examples) if examples else None,
        "drawn": list(planned.drawn),
        "units": [units[result.index] for result in results],
        "clients": [[client for client, _ in result.hops] for result in results],
        "client_updates": sum(len(result.hops) for result in results),
        "bytes_down": sum(result.bytes_down for result in results),
        "bytes_up": sum(result.bytes_up for result in results),
        "skipped": [*planned.skipped, *refused],
    }
    for policy in setup.policies:
        record |= policy.record(snapshot.kept[policy.name], snapshot.round)
    return record


def finite(number: float) -> float | None:
    """JSON has no word for inf and nan."""
    return number if math.isfinite(number) else None


def rehearse(setup: Setup, engine: Engine, snapshot: Snapshot, stopped: Callable[[], bool]) -> Snapshot:
    """Jobs before the first round that policies ask for, and that are accounted for like those of rounds."""
    for policy in setup.policies:
        jobs = policy.rehearsal(partial(plan, setup, snapshot))
        if not jobs:
            continue
        kept = {**snapshot.kept, **before_jobs(setup, snapshot, jobs)}
        # Hundreds of clients' models would fill the memory, and nobody needs them.
        results = [replace(result, end=result.start) for result in engine.run(jobs, stopped)]
        results.sort(key=lambda result: result.index)
        kept[policy.name] = policy.after(kept[policy.name], results, 0)
        snapshot = replace(snapshot, kept=kept)
    return snapshot


def final_model(setup: Setup, state: State) -> Tensor:
    return models_to_evaluate(setup.algorithm, state, setup.setting)[""]
