"""A small run that is killed and continued while it is tracked, and what its metrics say."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.stopping import Interrupted
from fedseq.runs.reading import Run
from fedseq.tracking import scalars
from fedseq.training.reporter import QUIET, Quiet

Points = dict[str, list[tuple[int, float]]]


class StopAfterTwo(Quiet):
    """Ctrl-C in the second round."""

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == 2:
            os.kill(os.getpid(), signal.SIGINT)


class KillInFour(Quiet):
    """The end of the process in the fourth round: nothing is closed, flushed or saved any more."""

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == 4:
            os.kill(os.getpid(), signal.SIGKILL)


def small_run(folder: Path, track: str, reporter: Quiet = QUIET, rounds: int = 4, every: int = 1) -> Run:
    torch.manual_seed(0)
    clients = [(x, (x.sum(1) > 0).long()) for x in torch.randn(4, 12, 3)]
    return fedseq.federate(
        lambda: nn.Linear(3, 2), clients, clients[0], "fedavg", folder=folder, rounds=rounds, lr=0.1, engine="serial",
        checkpoint_every=every, track=track, reporter=reporter,
    )  # fmt: skip


def killed_and_continued(folder: Path, track: str) -> Run:
    """Four rounds, of which the second was tracked and then lost with its checkpoint, as after a kill."""
    with pytest.raises(Interrupted):
        small_run(folder, track, StopAfterTwo())
    max((folder / "checkpoints").glob("*.json")).unlink()
    return small_run(folder, track)


def killed_at_once_and_continued(folder: Path, track: str) -> Run:
    """Five rounds, of which three were tracked, and none was in a checkpoint, when SIGKILL came."""
    arguments = (folder, track, KillInFour(), 5, 5)
    process = multiprocessing.get_context("spawn").Process(target=small_run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return small_run(folder, track, rounds=5, every=5)


def expected(run: Run) -> Points:
    """What metrics.jsonl holds, by name: (round, value)."""
    found: Points = {}
    for record in run.metrics:
        for name, value in scalars(record).items():
            found.setdefault(name, []).append((record["round"], value))
    assert len(found["accuracy"]) == run.config.rounds
    assert {"loss", "train_loss", "client_updates", "bytes_up", "class_accuracy/1"} <= found.keys()
    return found
