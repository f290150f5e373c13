"""What a federation is compared with: the same run on one machine; and clients that misbehave on purpose."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedseq.api.experiment import execute
from fedseq.engines import SerialEngine
from fedseq.options.config import Config
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts
from fedseq.training.jobs import Job, Result, never
from fedseq.training.reporter import QUIET
from flower.federations import Running

NODES = 4
OPTIONS = {
    "dataset": "digits",
    "algorithm": "fedseq+feddyn",
    "rounds": 2,
    "fraction": 1.0,
    "min_samples": 700,
    "pretrain_epochs": 1,
    "exemplars": 5,
}  # fmt: skip - two superclients of two clients

BRIEF = ("grouping=random", "update_check=none")  # neither pre-training nor calibration

WRAPPED_CLIENT = """
import json, os, signal
from pathlib import Path

from flwr.clientapp import ClientApp
from fedseq.flower.client_app import make_client_app

inner = make_client_app()
app = ClientApp()


@app.query("hello")
def hello(message, context):
    return inner(message, context)


@app.train()
def train(message, context):
    job = message.content.config_records["job"]
    client, place = job["client"], (job["purpose"], job["round"], job["client"])
"""


def checksum(folder: Path) -> str:
    return hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class WithoutHops(SerialEngine):
    """One machine on which these (round, client) never answer."""

    missing: Sequence[tuple[int, int]] = ()

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        def left(job: Job) -> tuple:
            return tuple(hop for hop in job.hops if job.purpose != "train" or (job.round, hop[0]) not in self.missing)

        return super().run([replace(job, hops=left(job)) for job in jobs], stopped)


def on_one_machine(
    folder: Path, missing: Sequence[tuple[int, int]] = (), nodes: int = NODES, **options: object
) -> Path:
    choices: dict[str, Any] = {"update_check": "size", "checkpoint_every": 1, "engine": "serial", **options}
    config = resolve(choices, {**OPTIONS, "num_clients": nodes})

    def engine(_: Config, task: object) -> WithoutHops:
        made = WithoutHops(task)  # type: ignore[arg-type]
        made.missing = missing
        return made

    folder.mkdir()
    execute(named_parts(config, QUIET), folder, make_engine=engine)
    return folder


def use_client(fed: Running, lines: str) -> None:
    (fed.folder / "app" / "client_app.py").write_text(WRAPPED_CLIENT + lines + "    return inner(message, context)\n")
