"""Places to run jobs. An engine computes; what is computed does not depend on it."""

from fedseq.basics.errors import FedSeqError
from fedseq.engines.dispatcher import most_requests
from fedseq.engines.serial import SerialEngine
from fedseq.options.config import Config
from fedseq.options.tables import ENGINES
from fedseq.training.jobs import Engine, Task


def open_ray(task: Task, config: Config) -> Engine:
    """Ray is an extra and takes a while to import, so both are left until it is asked for."""
    try:
        from fedseq.engines.ray import RayEngine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        message = "--engine ray needs Ray, which is not installed. In FedSeq's folder: pip install '.[ray]'"
        raise FedSeqError(message) from None
    workers = min(config.workers, most_requests(task)) if config.workers else None
    return RayEngine(task, config.ray_address, workers)


def open_engine(config: Config, task: Task) -> Engine:
    engine: Engine = ENGINES.row(config.engine).load()(task, config)
    return engine


__all__ = ["Engine", "SerialEngine", "open_engine"]
