"""How long it will take, from a few rounds of FedAvg measured on this machine.

The unit is a client's visit. A round of every algorithm visits about fraction * K clients; SCAFFOLD looks at each
client's data twice; pre-training visits every client once an epoch; a centralized epoch is the work of K visits.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedseq import experiment
from fedseq.config import known, resolve
from fedseq.paper.tasks import Task, rounds_left
from fedseq.report.costs import algorithm_parts
from fedseq.report.reading import read_details
from fedseq.training import one_thread

ROUNDS = 3  # measured; the first is left out, as it warms up


@dataclass(frozen=True)
class Speed:
    visit: float  # seconds
    evaluation: float
    clients: int


def measure(task: Task) -> Speed:
    """On the task's data and model."""
    keep = ("dataset", "data_dir", "model", "seed", "batch_size")
    base = {name: getattr(task.config, name) for name in keep}
    config = resolve(replace(type(task.config)(), **base, algorithm="fedavg", rounds=ROUNDS, engine="serial"))
    with tempfile.TemporaryDirectory() as folder, one_thread():
        run = experiment.run(config, folder)
        timing = read_details(run.folder).timing[1:]
        visits = sum(line["client_updates"] for line in run.metrics[1:])
    trained, evaluated = (sum(line[name] for line in timing) for name in ("train", "evaluate"))
    return Speed(trained / visits, evaluated / len(timing), known(config.num_clients))


def seconds(task: Task, speed: Speed) -> float:
    config, rounds = task.config, rounds_left(task)
    if task.epochs:
        return max(task.epochs) * speed.clients * speed.visit
    if config.algorithm == "centralized":
        return rounds * speed.clients * speed.visit + rounds * speed.evaluation
    parts = algorithm_parts(config)
    visits = rounds * config.fraction * speed.clients * config.superclient_epochs
    pretraining = config.pretrain_epochs * speed.clients if parts.superclients and config.method != "random" else 0
    twice = 2 if parts.local == "scaffold" else 1
    return (visits * twice + pretraining) * speed.visit + rounds / config.eval_every * speed.evaluation


def total_seconds(tasks: Sequence[Task], jobs: int) -> float:
    """Of all tasks, on as many workers; each data set is measured once."""
    speeds: dict[str, Speed] = {}
    for task in tasks:
        if task.config.dataset not in speeds:
            speeds[task.config.dataset] = measure(task)
    each = [seconds(task, speeds[task.config.dataset]) for task in tasks]
    return max(sum(each) / max(1, min(jobs, len(each))), max(each, default=0.0))
