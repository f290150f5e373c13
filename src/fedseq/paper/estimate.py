"""How long it will take, from a few rounds of FedAvg measured on this machine.

The unit is a client's visit. A round of every algorithm visits about fraction * K clients; SCAFFOLD looks at each
client's data twice; pre-training visits every client once an epoch; a centralized epoch is the work of K visits.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from fedseq import algorithms
from fedseq.api import experiment
from fedseq.basics.stopping import Interrupted
from fedseq.options.resolve import resolve
from fedseq.sweep.assignments import Assignment, rounds_left
from fedseq.training.sgd import one_thread

ROUNDS = 3  # measured; the first is left out, as it warms up


@dataclass(frozen=True)
class Speed:
    visit: float  # seconds
    evaluation: float
    clients: int


def measure(assignment: Assignment) -> Speed:
    """On the assignment's data and model."""
    keep = ("dataset", "data_dir", "model", "seed", "batch_size")
    base = {name: getattr(assignment.config, name) for name in keep}
    config = resolve({**base, "algorithm": "fedavg", "rounds": ROUNDS, "engine": "serial"})
    with tempfile.TemporaryDirectory() as folder, one_thread():
        try:
            run = experiment.run(config, folder)
        except Interrupted:  # there is nothing to save of a measurement
            raise KeyboardInterrupt from None
        timing = run.details.timing[1:]
        visits = sum(line["client_updates"] for line in run.metrics[1:])
    trained, evaluated = (sum(line[name] for line in timing) for name in ("train", "evaluate"))
    return Speed(trained / visits, evaluated / len(timing), config.num_clients)


def seconds(assignment: Assignment, speed: Speed) -> float:
    config, rounds = assignment.config, rounds_left(assignment)
    if assignment.epochs:
        return max(assignment.epochs) * speed.clients * speed.visit
    if config.algorithm == "centralized":
        return rounds * speed.clients * speed.visit + rounds * speed.evaluation
    algorithm = algorithms.build(config)
    visits = rounds * config.fraction * speed.clients * config.superclient_epochs
    pretraining: int = config.options().get("pretrain_epochs", 0) * speed.clients
    training = (visits * (1 + algorithm.extra_passes) + pretraining) * speed.visit
    return training + rounds / config.eval_every * speed.evaluation


def total_seconds(assignments: Sequence[Assignment], jobs: int) -> float:
    """Of all assignments, on as many workers; each data set is measured once."""
    speeds: dict[str, Speed] = {}
    for assignment in assignments:
        if assignment.config.dataset not in speeds:
            speeds[assignment.config.dataset] = measure(assignment)
    each = [seconds(assignment, speeds[assignment.config.dataset]) for assignment in assignments]
    return max(sum(each) / max(1, min(jobs, len(each))), max(each, default=0.0))
