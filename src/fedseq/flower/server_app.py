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
from fedseq.api.experiment import execute
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_json
from fedseq.data import Dataset, load_dataset, load_labelled
from fedseq.data.dataset import Arrays, half_scaled
from fedseq.flower.federation_folder import Federation
from fedseq.flower.keys import read_keys
from fedseq.flower.messages import DataFacts, bound_answers
from fedseq.flower.nodes import Roster
from fedseq.flower.remote_engine import FlowerEngine
from fedseq.flower.run_options import Settings, read_run_config
from fedseq.options.config import Config
from fedseq.rounds.open_run import run_folder
from fedseq.rounds.prepare import assemble
from fedseq.runs.folder import RunFolder
from fedseq.runs.reading import Run
from fedseq.training.jobs import Task
from fedseq.training.reporter import Quiet

IDENTITY = "server.json"


def make_server_app(algorithm: Callable[[Config], Algorithm] = algorithms.build) -> ServerApp:
    """The app that the SuperLink runs; give the same algorithm to the clients'."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, Federation.of_this_server(), *read_run_config(context.run_config), algorithm)
        except FedSeqError as error:
            _log(logging.ERROR, f"fedseq: error: {error}")
            raise

    return app


def serve(
    grid: Grid, federation: Federation, config: Config, settings: Settings, algorithm: Callable[[Config], Algorithm]
) -> Run:
    """Start the run, or continue it from its last checkpoint if its folder holds one."""
    reporter = LogReporter()
    folder = run_folder(federation.folder / settings.out, config)
    bound_answers(0)
    dataset = _server_data(config, federation.server_data)
    dataset = replace(dataset, x_train=dataset.x_train[:0], y_train=dataset.y_train[:0])
    clients, rule = config.num_clients, algorithm(config)
    settled = assemble(config, dataset, [np.zeros(0, np.int64)] * clients, rule)
    config = settled.config  # with kernels for all alike
    of_data = (dataset.shape, dataset.class_names, dataset.mean, dataset.std)
    facts = DataFacts(*of_data, config.kernels, settled.task.frozen_digest)
    keys = read_keys(federation.folder / "keys", clients) if settings.keys else {}
    earlier = dict(enumerate(_identity(folder).get("examples", [])))
    roster = Roster(grid, facts, clients, keys, reporter.note, settings.hop_deadline, sizes=earlier)
    roster.gather(settings.wait)
    # As long as each client's data, which is elsewhere; they take no memory, whatever a client claims.
    lengths = [np.broadcast_to(np.int64(0), size) for size in roster.counted(settings.most_examples)]
    parts = replace(settled, task=replace(settled.task, clients=lengths), test_source=federation.server_data)

    def engine(_: Config, task: Task) -> FlowerEngine:
        """Called by the only one who writes in the folder, so that of two that start at once one names the run."""
        name = _identity(folder).get("run") or secrets.token_hex(16)
        write_json(folder / IDENTITY, {"run": name, "examples": [roster.sizes[client] for client in range(clients)]})
        made = FlowerEngine(task, roster, name, settings.hop_deadline, settings.wait)
        bound_answers(made.here.model.vector.nbytes)
        return made

    run = execute(parts, folder, reporter, engine)
    why = "" if run.complete else f" of {config.rounds}: the privacy budget allows no more"
    reporter.note(f"finished after {run.rounds} rounds{why}; results in {folder}")
    return run


def _identity(folder: Path) -> dict[str, Any]:
    """The run's name for its clients, and what they said they hold, from an earlier start: both outlive the process."""
    file = folder / IDENTITY
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {"run": str(found["run"]), "examples": [int(size) for size in found["examples"]]}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError) as error:
        if not any(RunFolder(folder).checkpoints.glob("*")):
            return {}  # nothing was learned under that name
        raise FedSeqError(
            f"{file} is damaged ({error!r}), and with it the name under which clients keep their memory. Restore it. "
            "Without memory (not SCAFFOLD, not FedDyn) nothing is lost: remove it."
        ) from None


def _server_data(config: Config, source: str) -> Dataset:
    """Test set and exemplars. Where clients bring their own data, the server has a file of its own and no more."""
    if not source:
        return load_dataset(config.dataset, Path(config.data_dir) if config.data_dir else None)
    own = load_labelled(source)
    return half_scaled("own", Arrays(own.x[:0], own.y[:0], own.x, own.y), own.class_names)


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
        self.rounds = config.rounds
        _log(logging.INFO, f"{config.algorithm}: rounds {round_ + 1} to {self.rounds}, results in {folder}")

    def round(self, record: dict[str, Any]) -> None:
        accuracy = "" if record["accuracy"] is None else f"  accuracy {record['accuracy']:.4f}"
        spent = "" if record.get("epsilon") is None else f"  epsilon {record['epsilon']:.3g}"
        updates = f"{record['client_updates']} updates"
        _log(logging.INFO, f"round {record['round']}/{self.rounds}{accuracy}  {updates}{spent}")
        for hop in record["skipped"]:
            _log(logging.INFO, f"  skipped client {hop['client']} of unit {hop['unit']}: {hop['reason']}")


def _log(level: int, text: str) -> None:
    logging.getLogger("flwr").log(level, "%s", text)


app = make_server_app()  # what a federation's folder names
