"""One job after another in this process: the slow, honest engine that errors are debugged on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedseq.options.config import Config
from fedseq.training.chains import run_job
from fedseq.training.evaluation import Evaluation, evaluate
from fedseq.training.jobs import Job, Result, Stopped, Task, never
from fedseq.training.sgd import build, lay_out, one_thread


@dataclass(frozen=True)
class Evaluated:
    """It was computed when it was begun."""

    evaluation: Evaluation
    ready: bool = True

    def result(self, stopped: Callable[[], bool] = never) -> Evaluation:
        return self.evaluation


class SerialEngine:
    def __init__(self, task: Task):
        self.model = build(task)
        self.task = lay_out(task, self.model)

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        for job in jobs:
            try:
                with one_thread():
                    result = run_job(self.task, self.model, job, stopped)
            except Stopped:
                return
            yield result

    def begin_evaluation(self, weights: Tensor) -> "Evaluated":
        return Evaluated(self.evaluate(weights))

    def evaluate(self, weights: Tensor) -> Evaluation:
        with one_thread():
            return evaluate(self.task, self.model, weights)

    def close(self) -> None:
        pass


def open_serial(task: Task, config: Config) -> SerialEngine:
    """However many workers are asked for, there is one."""
    return SerialEngine(task)
