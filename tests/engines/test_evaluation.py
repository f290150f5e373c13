"""An evaluation beside training: the same numbers, in workers that no job needs, whatever dies meanwhile."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedseq.algorithms.feddyn import feddyn
from fedseq.engines.dispatcher import CHUNKS_PER_WORKER, WorkerError
from fedseq.engines.processes import ProcessEngine
from fedseq.engines.serial import SerialEngine
from fedseq.training.evaluation import Evaluation, num_batches
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build
from helpers import wait_for

from .test_engines import assert_same, make_jobs, make_task

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked, on Linux only")


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


@pytest.fixture(scope="module")
def weights(task: Task) -> Tensor:
    return build(task).vector


@pytest.fixture(scope="module")
def jobs(task: Task, weights: Tensor) -> list[Job]:
    return make_jobs(task, feddyn(0.1), weights)


@pytest.fixture(scope="module")
def expected(task: Task, jobs: list[Job]) -> list[Result]:
    return list(SerialEngine(task).run(jobs))


@pytest.fixture(scope="module")
def evaluation(task: Task, weights: Tensor) -> Evaluation:
    return SerialEngine(task).evaluate(weights)


@pytest.fixture
def engine(task: Task) -> Iterator[ProcessEngine]:
    opened = ProcessEngine(task, 2)
    yield opened
    opened.close()


def kill(engine: ProcessEngine, place: int) -> None:
    os.kill(engine.workers[place].process.pid or 0, signal.SIGKILL)


def test_beside_training_with_workers_killed_in_between(
    engine: ProcessEngine, weights: Tensor, jobs: list[Job], expected: list[Result], evaluation: Evaluation
) -> None:
    for _ in range(2):
        pending = engine.begin_evaluation(weights)
        kill(engine, 0)  # at the evaluation
        found = []
        for result in engine.run(jobs):
            found.append(result)
            kill(engine, len(found) % 2)
        kill(engine, 1)
        assert pending.result() == evaluation
        assert pending.result() == evaluation  # it may be asked for again
        assert_same(found, expected)
    assert not engine.orders


def test_several_at_once_and_results_left_unread_lose_nothing(
    engine: ProcessEngine, weights: Tensor, jobs: list[Job], task: Task, evaluation: Evaluation
) -> None:
    pending = [engine.begin_evaluation(weights), engine.begin_evaluation(weights * 2)]
    abandoned = engine.run(jobs)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert pending[1].result() == SerialEngine(task).evaluate(weights * 2)
    assert pending[0].result() == evaluation


def noted(output: Tensor, target: Tensor, log: Path) -> Tensor:
    """Adds a letter to the log for every batch: t for training, e for evaluation."""
    with log.open("a") as file:
        file.write("t" if torch.is_grad_enabled() else "e")
    return cross_entropy(output, target)


def test_jobs_go_first(task: Task, weights: Tensor, jobs: list[Job], tmp_path: Path) -> None:
    alone = ProcessEngine(replace(task, loss=partial(noted, log=tmp_path / "log")), 1)
    pending = alone.begin_evaluation(weights)
    list(alone.run(jobs))
    pending.result()
    alone.close()
    batches = num_batches(task.test)
    chunk = batches // CHUNKS_PER_WORKER  # the worker was idle, so it got one at once
    trained, rest = (tmp_path / "log").read_text().strip("e"), batches - chunk
    assert set(trained) == {"t"}
    assert (tmp_path / "log").read_text() == "e" * chunk + trained + "e" * rest


def evaluated_first(output: Tensor, target: Tensor, log: Path, batches: int) -> Tensor:
    """Training waits until all of the evaluation is done."""
    if torch.is_grad_enabled():
        wait_for(lambda: log.exists() and log.read_text().count("e") == batches)
        return cross_entropy(output, target)
    return noted(output, target, log)


def test_a_worker_without_a_job_evaluates(
    task: Task, weights: Tensor, jobs: list[Job], expected: list[Result], evaluation: Evaluation, tmp_path: Path
) -> None:
    loss = partial(evaluated_first, log=tmp_path / "log", batches=num_batches(task.test))
    engine = ProcessEngine(replace(task, loss=loss), 2)
    pending = engine.begin_evaluation(weights)
    found = list(engine.run(jobs[:1]))  # would wait for ever if the second worker did not evaluate
    assert_same(found, [result for result in expected if result.index == jobs[0].index])
    assert pending.result() == evaluation
    engine.close()


def fails_in_evaluation(output: Tensor, target: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        raise ValueError("no such luck")
    return cross_entropy(output, target)


def test_an_error_of_the_evaluation_is_raised_where_it_is_asked_for(
    task: Task, weights: Tensor, jobs: list[Job], expected: list[Result]
) -> None:
    engine = ProcessEngine(replace(task, loss=fails_in_evaluation), 2)
    pending = engine.begin_evaluation(weights)
    assert_same(list(engine.run(jobs)), expected)
    for _ in range(2):
        with pytest.raises(WorkerError, match="no such luck"):
            pending.result()
    unfinished = engine.begin_evaluation(weights)
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        unfinished.result()


def test_the_serial_engine_computes_it_when_it_is_begun(task: Task, weights: Tensor, evaluation: Evaluation) -> None:
    changing = weights.clone()
    pending = SerialEngine(task).begin_evaluation(changing)
    changing.zero_()
    assert pending.result() == evaluation
