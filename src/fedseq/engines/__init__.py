"""Places to run jobs. An engine computes; what is computed does not depend on it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import Tensor

from fedseq.engines.processes import open_processes
from fedseq.engines.serial import SerialEngine, open_serial
from fedseq.evaluation import Evaluation
from fedseq.jobs import Job, Result, Task


class Engine(Protocol):
    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Results as they finish, in any order."""
        ...

    def evaluate(self, weights: Tensor) -> Evaluation: ...

    def close(self) -> None: ...


ENGINES: dict[str, Callable[[Task, int | None], Engine]] = {"processes": open_processes, "serial": open_serial}

__all__ = ["ENGINES", "Engine", "SerialEngine"]
