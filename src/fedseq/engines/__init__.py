"""Places to run jobs. An engine computes; what is computed does not depend on it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import Tensor

from fedseq.config import Config
from fedseq.engines.processes import open_processes
from fedseq.engines.serial import SerialEngine, open_serial
from fedseq.errors import FedSeqError
from fedseq.evaluation import Evaluation
from fedseq.jobs import Job, Result, Task


class Engine(Protocol):
    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Results as they finish, in any order."""
        ...

    def evaluate(self, weights: Tensor) -> Evaluation: ...

    def close(self) -> None: ...


def open_ray(task: Task, config: Config) -> Engine:
    """Ray is an extra and takes a while to import, so both are left until it is asked for."""
    try:
        from fedseq.engines.ray import RayEngine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise FedSeqError("--engine ray needs Ray, which is not installed. Run: pip install 'fedseq[ray]'") from None
    return RayEngine(task, config.ray_address, config.workers)


ENGINES: dict[str, Callable[[Task, Config], Engine]] = {
    "processes": open_processes,
    "ray": open_ray,
    "serial": open_serial,
}

__all__ = ["ENGINES", "Engine", "SerialEngine"]
