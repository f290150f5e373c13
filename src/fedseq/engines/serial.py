"""One job after another in this process: the slow, honest engine that errors are debugged on."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from fedseq.chains import run_job
from fedseq.config import Config
from fedseq.evaluation import Evaluation, evaluate
from fedseq.jobs import Job, Result, Task
from fedseq.training import build, one_thread, prepare


class SerialEngine:
    def __init__(self, task: Task):
        self.model = build(task)
        self.task = prepare(task, self.model)

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        for job in jobs:
            with one_thread():
                result = run_job(self.task, self.model, job)
            yield result

    def evaluate(self, weights: Tensor) -> Evaluation:
        with one_thread():
            return evaluate(self.task, self.model, weights)

    def close(self) -> None:
        pass


def open_serial(task: Task, config: Config) -> SerialEngine:
    """However many workers are asked for, there is one."""
    return SerialEngine(task)
