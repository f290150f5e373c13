"""The round loop: plan, run, aggregate, evaluate, record. There is no other."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedseq.algorithms.base import State, aggregate, models_to_evaluate, starts
from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted, stop_requests
from fedseq.runs.checkpoints import CheckpointWriter
from fedseq.runs.divergence import divergence, output_divergence, server_divergence
from fedseq.runs.enough import better, ends
from fedseq.runs.planning import Plan, Setup, chains_in, charge, last_round, plan
from fedseq.runs.private import Visits, noisy
from fedseq.runs.snapshots import Snapshot
from fedseq.training.evaluation import client_spread
from fedseq.training.gate import REMEMBERED, GateMemory
from fedseq.training.jobs import Engine, PendingEvaluation, Result, never
from fedseq.training.weights import all_finite

Record = dict[str, Any]
CHECKPOINT_SECONDS = 60.0
NOTHING = Plan([], [], [])


def run_rounds(setup: Setup, engine: Engine, snapshot: Snapshot) -> Iterator[tuple[Record, Record, Snapshot]]:
    """Each round's record and seconds, once they are written, and the run as it is then.

    A round is written when its evaluation is there. Workers see to it while the next round trains; what comes of that
    round is dropped if this one was the last.
    """
    config, written, unwritten = setup.config, snapshot, None
    last_checkpoint = _LastCheckpoint(snapshot.round)
    with (
        stop_requests() as stop_requested,
        CheckpointWriter(setup.log.files.checkpoints, setup.log.evidence) as checkpoints,
    ):
        if config.gate and snapshot.round == 0:
            snapshot = written = calibrate_gate(setup, engine, snapshot, stop_requested)
            if stop_requested():
                raise Interrupted(setup.log.files.path)
        end = last_round(setup, snapshot)
        while unwritten or snapshot.round < end:
            times, planned, results = [time.perf_counter()], NOTHING, []
            if snapshot.round < end and not (unwritten and unwritten.evaluated):
                planned = plan(setup, snapshot)
                visits = charge(setup, snapshot, planned.jobs)
                times.append(time.perf_counter())
                results = sorted(engine.run(planned.jobs, stop_requested), key=lambda result: result.index)
                times.append(time.perf_counter())
            if unwritten:
                try:
                    record, timing = unwritten.finish(stop_requested)
                except FedSeqError:
                    checkpoints.save(written)
                    raise
                setup.log.append(record, timing)
                written = snapshot = _with_best(setup, unwritten.snapshot, record)
                unwritten, last = None, written.round == end or ends(config, record, written.best)
                if last or last_checkpoint.is_old(written.round, config.checkpoint_every):
                    checkpoints.save(written)
                    last_checkpoint = _LastCheckpoint(written.round)
                yield record, timing, written
                if last:
                    return
            if stop_requested():
                checkpoints.save(written)
                raise Interrupted(setup.log.files.path)
            if planned is NOTHING:
                continue
            trouble = divergence(planned.jobs, results, snapshot)
            if trouble:
                checkpoints.save(written)
                raise trouble
            advanced = _advance(setup, snapshot, results, visits)
            if not all(map(all_finite, advanced.state.values())):
                checkpoints.save(written)
                raise server_divergence(advanced.round)
            snapshot = checkpoints.spill(advanced, config.memory_limit)
            end = last_round(setup, snapshot)
            record = _record(setup, snapshot, planned, results)
            unwritten = _Unwritten.begin(setup, engine, snapshot, record, times, snapshot.round == end)


@dataclass(frozen=True)
class _Unwritten:
    """A round that is complete but for its evaluation."""

    snapshot: Snapshot
    record: Record
    evaluations: dict[str, PendingEvaluation]  # by the name of the model; "" is the server's
    seconds: Record

    @staticmethod
    def begin(
        setup: Setup, engine: Engine, snapshot: Snapshot, record: Record, times: Sequence[float], last: bool
    ) -> "_Unwritten":
        began, planned, trained = times
        aggregated = time.perf_counter()
        models = {}
        if snapshot.round % setup.config.eval_every == 0 or last:
            models = models_to_evaluate(setup.algorithm, snapshot.state, setup.setting)
        evaluations = {name: engine.begin_evaluation(weights) for name, weights in models.items()}
        seconds = {
            "round": snapshot.round,
            "train": trained - planned,
            "evaluate": time.perf_counter() - aggregated,
            "overhead": (planned - began) + (aggregated - trained),  # planning and aggregation
        }
        return _Unwritten(snapshot, record, evaluations, seconds)

    @property
    def evaluated(self) -> bool:
        return all(pending.ready for pending in self.evaluations.values())

    def finish(self, stopped: Callable[[], bool]) -> tuple[Record, Record]:
        """The record, and the seconds that the round took or held up the next one."""
        began = time.perf_counter()
        record = dict(self.record)
        for name, pending in self.evaluations.items():
            evaluation = pending.result(stopped)
            if evaluation.undefined:
                raise output_divergence(self.snapshot.round, evaluation.undefined)
            if name:
                record[f"accuracy_{name}"] = evaluation.accuracy
            else:
                record.update(accuracy=evaluation.accuracy, loss=_finite(evaluation.loss))
                record["per_class_accuracy"] = list(evaluation.per_class)
                record.update(client_spread(evaluation.per_client) if evaluation.per_client else {})
        return record, {**self.seconds, "evaluate": self.seconds["evaluate"] + time.perf_counter() - began}


def calibrate_gate(
    setup: Setup, engine: Engine, snapshot: Snapshot, stop_requested: Callable[[], bool] = never
) -> Snapshot:
    """What the first round's clients do, each alone from the initial model; all clients, where exemplars are looked at.

    Only the gate remembers it.
    """
    units = range(len(setup.units)) if setup.config.checks_exemplars else None
    planned = plan(setup, snapshot, units).jobs
    jobs = [
        replace(job, index=index, hops=((client, 0),), start=snapshot.state["weights"], purpose="calibrate")
        for index, (job, client) in enumerate(
            (job, client) for job in planned for client in {client: 0 for client, _ in job.hops}
        )
    ]
    visits = charge(setup, snapshot, jobs)
    # Hundreds of clients' models would fill the memory, and nobody needs them.
    results = (replace(result, end=snapshot.state["weights"]) for result in engine.run(jobs, stop_requested))
    seen = _remembered(GateMemory(), sorted(results, key=lambda result: result.index))
    return replace(snapshot, visits=visits, gate=replace(seen, rejected_rounds=0))  # it is no round


def _remembered(gate: GateMemory, results: Sequence[Result]) -> GateMemory:
    changes = (*gate.changes, *(change for result in results if result.hops for change in result.changes))
    visits = (*gate.visits, *(visit for result in results for visit in result.visits))
    looked_at = {client: standing for result in results for client, standing in result.standings.items()}
    nothing = bool(results) and not any(result.hops for result in results)
    return GateMemory(
        changes=changes[-REMEMBERED:],
        rejected_rounds=gate.rejected_rounds + 1 if nothing else 0,
        standings={**gate.standings, **looked_at},
        visits=visits[-REMEMBERED:],
    )


def _advance(setup: Setup, snapshot: Snapshot, results: Sequence[Result], visits: Visits) -> Snapshot:
    """The round is committed here, model and clients' memory together."""
    round_ = snapshot.round + 1
    new = {client: kept for result in results for client, kept in result.memory.items()}
    memory = {client: kept for client, kept in {**snapshot.memory, **new}.items() if kept}  # some forget
    changed = {**snapshot.changed, **dict.fromkeys(new, round_)}
    remembered = _remembered(snapshot.gate, results)
    start = starts(setup.algorithm, snapshot.state, 1)[0]
    merged = noisy(setup.config, results, start, chains_in(setup, round_), round_)
    return Snapshot(
        round=round_,
        state=aggregate(setup.algorithm, snapshot.state, merged, setup.setting, round_),
        memory=memory,
        changed={client: changed[client] for client in memory},
        gate=remembered if setup.config.gate else GateMemory(rejected_rounds=remembered.rejected_rounds),
        best=snapshot.best,
        best_model=snapshot.best_model,
        visits=visits,
    )


def _with_best(setup: Setup, snapshot: Snapshot, record: Record) -> Snapshot:
    """The round as it is kept: with its model as the best, if that is asked for and it is."""
    best = better(snapshot.best, record) if setup.config.patience is not None else None
    if best == snapshot.best:
        return snapshot
    return replace(snapshot, best=best, best_model={"weights": final_model(setup, snapshot.state)})


def _record(setup: Setup, snapshot: Snapshot, planned: Plan, results: Sequence[Result]) -> Record:
    examples = sum(result.examples for result in results)
    units = {job.index: job.unit for job in planned.jobs}
    rejected = [
        {"unit": units[result.index], "client": hop.client, "reason": hop.reason}
        for result in results
        for hop in result.rejected
    ]
    told = examples and not setup.privacy  # a private client does not tell its loss
    return {
        "round": snapshot.round,
        "accuracy": None,
        "loss": None,
        "train_loss": _finite(sum(r.loss * r.examples for r in results) / examples) if told else None,
        "drawn": planned.drawn,
        "units": [units[result.index] for result in results],
        "clients": [[client for client, _ in result.hops] for result in results],
        "client_updates": sum(len(result.hops) for result in results),
        "bytes_down": sum(result.bytes_down for result in results),
        "bytes_up": sum(result.bytes_up for result in results),
        "skipped": planned.skipped + rejected,
        **({"epsilon": _finite(setup.privacy.spent(snapshot.visits, snapshot.round))} if setup.privacy else {}),
    }


def _finite(number: float) -> float | None:
    """JSON has no word for inf and nan."""
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class _LastCheckpoint:
    """When it was made."""

    round: int
    seconds: float = field(default_factory=time.monotonic)

    def is_old(self, round_: int, every: int | None) -> bool:
        if every is not None:
            return round_ - self.round >= every
        return time.monotonic() - self.seconds >= CHECKPOINT_SECONDS


def final_model(setup: Setup, state: State) -> Tensor:
    return models_to_evaluate(setup.algorithm, state, setup.setting)[""]
