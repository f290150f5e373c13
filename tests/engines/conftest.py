"""What every engine is asked, and what the slow, honest one answers."""

import pytest

from fedseq.algorithms.feddyn import feddyn
from fedseq.engines.serial import SerialEngine
from fedseq.training.jobs import Job, Result, Task

from .test_engines import make_jobs, make_task


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


@pytest.fixture(scope="module")
def jobs(task: Task) -> list[Job]:
    return make_jobs(task, feddyn(0.1))


@pytest.fixture(scope="module")
def expected(task: Task, jobs: list[Job]) -> list[Result]:
    return list(SerialEngine(task).run(jobs))
