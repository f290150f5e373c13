"""The round loop: plan, run, aggregate, evaluate, record. There is no other."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from torch import Tensor

from fedseq.algorithms.base import State, aggregate, models_to_evaluate
from fedseq.checkpoints import CheckpointWriter, Progress
from fedseq.config import Config, known
from fedseq.engines import Engine
from fedseq.errors import FedSeqError
from fedseq.files import append_line
from fedseq.gate import HOPELESS, REMEMBERED
from fedseq.jobs import Job, Result
from fedseq.planning import Federation, Plan, plan

Record = dict[str, Any]
CHECKPOINT_SECONDS = 60.0


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C or SIGTERM: the run was saved at its last complete round."""


def run_rounds(federation: Federation, engine: Engine, progress: Progress) -> Iterator[tuple[Record, Progress]]:
    """Each round's record and seconds, once they are written, and where the run stands then."""
    config, folder = federation.config, federation.folder
    saved = _Clock(progress.round)
    with _stop_requests() as stop_requested, CheckpointWriter(folder) as checkpoints:
        if config.gate and progress.round == 0:
            progress = calibrate_gate(federation, engine, progress)
        while progress.round < known(config.rounds):
            clock = [time.perf_counter()]
            planned = plan(federation, progress)
            clock.append(time.perf_counter())
            results = _collect(engine.run(planned.jobs), stop_requested)
            if stop_requested():
                checkpoints.save(progress)
                raise Interrupted(folder)
            trouble = _divergence(planned.jobs, results, progress)
            if trouble:
                checkpoints.save(progress)
                raise trouble
            clock.append(time.perf_counter())
            advanced = _advance(federation, progress, results)
            if not all(bool(tensor.isfinite().all()) for tensor in advanced.state.values()):
                checkpoints.save(progress)
                raise _server_divergence(advanced.round)
            progress = checkpoints.spill(advanced, config.memory_limit)
            record = _record(progress.round, planned, results)
            clock.append(time.perf_counter())
            if progress.round % config.eval_every == 0 or progress.round == config.rounds:
                record.update(_evaluate(engine, federation, progress.state))
            append_line(folder / "metrics.jsonl", record)
            timing = _timing(progress.round, clock)
            append_line(folder / "timing.jsonl", timing)
            last = progress.round == config.rounds or _good_enough(record, config)
            if last or saved.is_old(progress.round, config.checkpoint_every):
                checkpoints.save(progress)
                saved = _Clock(progress.round)
            yield {**record, "seconds": timing}, progress
            if last:
                return


def _collect(results: Iterator[Result], stop_requested: Callable[[], bool]) -> list[Result]:
    """All results by job index, whatever order they arrive in."""
    collected = []
    for result in results:
        collected.append(result)
        if stop_requested():
            break
    return sorted(collected, key=lambda result: result.index)


def calibrate_gate(federation: Federation, engine: Engine, progress: Progress) -> Progress:
    """The changes that the first round's clients make, each alone from the initial model. Nothing else is kept."""
    jobs = [
        replace(job, index=index, hops=((client, 0),), start=progress.state["weights"], purpose="calibrate")
        for index, (job, client) in enumerate(
            (job, client) for job in plan(federation, progress).jobs for client in {client: 0 for client, _ in job.hops}
        )
    ]
    results = sorted(engine.run(jobs), key=lambda result: result.index)
    return replace(progress, changes=tuple(change for result in results for change in result.changes)[-REMEMBERED:])


def _divergence(jobs: Sequence[Job], results: Sequence[Result], progress: Progress) -> FedSeqError | None:
    round_ = progress.round + 1
    for result in results:
        if result.diverged is not None:
            unit = next(job.unit for job in jobs if job.index == result.index)
            return FedSeqError(
                f"training diverged in round {round_}, unit {unit}, client {result.diverged}: loss or weights are no "
                f"longer finite. The model of round {round_ - 1} is kept. Lower --lr, or set --clip-norm or --gate."
            )
    if results and not any(result.hops for result in results) and progress.rejected_rounds + 1 >= HOPELESS:
        reasons = sorted({hop.reason for result in results for hop in result.rejected})
        return FedSeqError(
            f"in {HOPELESS} rounds in a row, up to round {round_}, no client's update was accepted "
            f"({'; '.join(reasons[:3])}). The last model is kept. Where training diverges, lower --lr or raise "
            "--gate-factor."
        )
    return None


def _server_divergence(round_: int) -> FedSeqError:
    return FedSeqError(
        f"training diverged in round {round_}: the clients' models are finite, and the server's step made of them is "
        f"not. The model of round {round_ - 1} is kept. Lower --server-lr or --lr."
    )


def _advance(federation: Federation, progress: Progress, results: Sequence[Result]) -> Progress:
    """The round is committed here, model and clients' memory together."""
    round_ = progress.round + 1
    trained = [result for result in results if result.hops]
    new = {client: kept for result in trained for client, kept in result.memory.items()}
    changes = (*progress.changes, *(change for result in trained for change in result.changes))
    return Progress(
        round=round_,
        state=aggregate(federation.algorithm, progress.state, trained, federation.setting, round_),
        memory={**progress.memory, **new},
        changed={**progress.changed, **dict.fromkeys(new, round_)},
        changes=changes[-REMEMBERED:] if federation.config.gate else (),
        rejected_rounds=progress.rejected_rounds + 1 if results and not trained else 0,
    )


def _record(round_: int, planned: Plan, results: Sequence[Result]) -> Record:
    examples = sum(result.examples for result in results)
    units = {job.index: job.unit for job in planned.jobs}
    rejected = [
        {"unit": units[result.index], "client": hop.client, "reason": hop.reason}
        for result in results
        for hop in result.rejected
    ]
    return {
        "round": round_,
        "accuracy": None,
        "loss": None,
        "train_loss": _finite(sum(r.loss * r.examples for r in results) / examples) if examples else None,
        "units": [units[result.index] for result in results],
        "clients": [[client for client, _ in result.hops] for result in results],
        "client_updates": sum(len(result.hops) for result in results),
        "bytes_down": sum(result.bytes_down for result in results),
        "bytes_up": sum(result.bytes_up for result in results),
        "skipped": planned.skipped + rejected,
    }


def _evaluate(engine: Engine, federation: Federation, state: State) -> Record:
    record: Record = {}
    for name, weights in models_to_evaluate(federation.algorithm, state, federation.setting).items():
        evaluation = engine.evaluate(weights)
        if name:
            record[f"accuracy_{name}"] = evaluation.accuracy
        else:
            record.update(accuracy=evaluation.accuracy, loss=_finite(evaluation.loss))
            record["per_class_accuracy"] = list(evaluation.per_class)
    return record


def _finite(number: float) -> float | None:
    """JSON has no word for inf and nan."""
    return number if math.isfinite(number) else None


def _timing(round_: int, clock: Sequence[float]) -> Record:
    """Seconds of the round; overhead is planning and aggregation."""
    began, planned, trained, aggregated = clock
    return {
        "round": round_,
        "train": trained - planned,
        "evaluate": time.perf_counter() - aggregated,
        "overhead": (planned - began) + (aggregated - trained),
    }


def _good_enough(record: Record, config: Config) -> bool:
    return config.until_accuracy is not None and (record["accuracy"] or 0.0) >= config.until_accuracy


@dataclass(frozen=True)
class _Clock:
    """When the last checkpoint was made."""

    round: int
    seconds: float = field(default_factory=time.monotonic)

    def is_old(self, round_: int, every: int | None) -> bool:
        if every is not None:
            return round_ - self.round >= every
        return time.monotonic() - self.seconds >= CHECKPOINT_SECONDS


@contextlib.contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks the loop to save and stop; a second one is obeyed at once."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def request(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def final_model(federation: Federation, state: State) -> Tensor:
    return models_to_evaluate(federation.algorithm, state, federation.setting)[""]
