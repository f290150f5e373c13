"""The server of a real federation: the same round loop as everywhere, with clients at the other end of a network."""

import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedseq import algorithms
from fedseq.algorithms.base import Algorithm
from fedseq.config import Config, known
from fedseq.data import Dataset, load_dataset, load_labelled
from fedseq.data.dataset import Arrays, half_scaled
from fedseq.errors import FedSeqError
from fedseq.experiment import execute, run_folder
from fedseq.files import write_json
from fedseq.flower.engine import FlowerEngine
from fedseq.flower.messages import DataFacts, bound_answers
from fedseq.flower.roster import Roster, read_keys
from fedseq.flower.settings import Settings, read_run_config
from fedseq.jobs import Task
from fedseq.parts import assemble
from fedseq.progress import Quiet
from fedseq.results import Run

IDENTITY = "server.json"


def make_server_app(algorithm: Callable[[Config], Algorithm] = algorithms.build) -> ServerApp:
    """The app that the SuperLink runs; give the same algorithm to the clients'."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, *read_run_config(context.run_config), algorithm)
        except FedSeqError as error:
            _log(logging.ERROR, f"fedseq: error: {error}")
            raise

    return app


def serve(grid: Grid, config: Config, settings: Settings, algorithm: Callable[[Config], Algorithm]) -> Run:
    """Start the run, or continue it from its last checkpoint if its folder holds one."""
    reporter = LogReporter()
    folder = run_folder(settings.out or None, config)
    identity = _identity(folder)
    bound_answers(0)
    dataset = _server_data(config, settings)
    facts = DataFacts(dataset.shape, dataset.class_names, dataset.mean, dataset.std)
    clients = known(config.num_clients)
    keys = read_keys(Path(settings.keys), clients) if settings.keys else {}
    roster = Roster(grid, facts, clients, keys, reporter.note, sizes=dict(enumerate(identity["examples"])))
    roster.gather(settings.wait)
    sizes = [roster.sizes[client] for client in range(clients)]
    write_json(folder / IDENTITY, {**identity, "examples": sizes})
    parts = assemble(config, _without_training_data(dataset), [np.arange(size) for size in sizes])
    parts = replace(parts, algorithm=algorithm(parts.config))

    def engine(_: Config, task: Task) -> FlowerEngine:
        made = FlowerEngine(task, roster, identity["run"], settings.hop_deadline, settings.wait)
        bound_answers(made.here.model.vector.nbytes)
        return made

    run = execute(parts, folder, reporter, engine)
    reporter.note(f"finished after {run.rounds} rounds; results in {folder}")
    return run


def _identity(folder: Path) -> dict[str, Any]:
    """The run's name for its clients, and what they said they hold: both outlive the process."""
    file = folder / IDENTITY
    try:
        with file.open("x", encoding="utf-8") as new:  # of two that start at once, one gives the name
            new.write(json.dumps({"run": secrets.token_hex(16), "examples": []}))
    except FileExistsError:
        pass
    return json.loads(file.read_text(encoding="utf-8"))


def _server_data(config: Config, settings: Settings) -> Dataset:
    """Test set and exemplars. Where clients bring their own data, the server has a file of its own and no more."""
    if not settings.server_data:
        return load_dataset(config.dataset, Path(config.data_dir) if config.data_dir else None)
    own = load_labelled(settings.server_data)
    return half_scaled("own", Arrays(own.x[:0], own.y[:0], own.x, own.y), own.class_names)


def _without_training_data(dataset: Dataset) -> Dataset:
    return replace(dataset, x_train=dataset.x_train[:0], y_train=dataset.y_train[:0])


class LogReporter(Quiet):
    """Tells Flower's log, which `flwr run --stream` and `flwr log` show."""

    def __init__(self) -> None:
        self.rounds = 0

    def stage(self, done: int, total: int, what: str) -> None:
        if done == total or done % max(1, total // 10) == 0:
            _log(logging.INFO, f"{what}: {done} of {total}")

    def note(self, text: str) -> None:
        _log(logging.INFO, text)

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self.rounds = known(config.rounds)
        _log(logging.INFO, f"{config.algorithm}: rounds {round_ + 1} to {self.rounds}, results in {folder}")

    def round(self, record: dict[str, Any]) -> None:
        accuracy = "" if record["accuracy"] is None else f"  accuracy {record['accuracy']:.4f}"
        _log(logging.INFO, f"round {record['round']}/{self.rounds}{accuracy}  {record['client_updates']} updates")
        for hop in record["skipped"]:
            _log(logging.INFO, f"  skipped client {hop['client']} of unit {hop['unit']}: {hop['reason']}")


def _log(level: int, text: str) -> None:
    logging.getLogger("flwr").log(level, "%s", text)
