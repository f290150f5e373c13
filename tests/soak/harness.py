"""Small runs to be hurt, in a process or in this one, and what they should come to.

Processes are forked off one in which everything is imported already: a run takes a fraction of what Python needs to
start.

FEDSEQ_SOAK=1 runs the soak; FEDSEQ_SOAK_SHARE=0.1 a tenth of each piece, and FEDSEQ_SOAK_SEED another tenth each time.
"""

import atexit
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import fedseq
from fedseq.cli import main
from fedseq.engines import processes

SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
SHARE = float(os.environ.get("FEDSEQ_SOAK_SHARE") or 1)
SEED = os.environ.get("FEDSEQ_SOAK_SEED") or "0"
OPTIONS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "scaffold": {"patience": 100},
    "fedseq+feddyn": {"pretrain_epochs": 1},
    "fedseqinter": {"grouping": "random"},
}
ALIKE = {"checkpoint_every": 2, "num_clients": 30, "model": "mlp"}
WARM = ["fedseq.cli.run", "fedseq.cli.resume", "fedseq.api.experiment", "fedseq.engines.processes", "sklearn.datasets"]
ROUNDS = 4  # two checkpoints are kept, and one more was dropped
HANGING_SECONDS = 10  # in place of a minute, after which a worker is taken to hang
KEPT = ("metrics.jsonl", "weights.safetensors", "weights-best.safetensors", "clients.json", "superclients.json")
Limit = tuple[int, int]  # which resource, and how much of it


def some(number: int) -> int:
    """This share of so many, at least one."""
    return max(1, round(number * SHARE))


def options(algorithm: str, rounds: int = ROUNDS) -> dict[str, Any]:
    return {"algorithm": algorithm, "rounds": rounds, **ALIKE, **OPTIONS[algorithm]}


def flags(algorithm: str, rounds: int = ROUNDS) -> list[str]:
    given = options(algorithm, rounds).items()
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


def result(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in KEPT if (folder / name).exists()]


@lru_cache
def undisturbed(algorithm: str, rounds: int = ROUNDS) -> Path:
    """The folder of a run of this kind, to be copied; made once for all pieces."""
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return fedseq.run(options(algorithm, rounds), place / "run", engine="serial").folder


def expected(algorithm: str, rounds: int = ROUNDS) -> list[bytes]:
    return result(undisturbed(algorithm, rounds))


class Command:
    """`fedseq WORDS` in a process of its own, which may be short of something."""

    def __init__(self, *words: object, limit: Limit | None = None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(WARM)
        self.errors, far_end = context.Pipe(duplex=False)
        self.process = context.Process(target=_command, args=([*map(str, words)], far_end, limit))
        self.process.start()
        far_end.close()
        assert self.process.pid is not None
        self.pid = self.process.pid

    @property
    def running(self) -> bool:
        return self.process.is_alive()

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        said = bytearray()
        while more := os.read(self.errors.fileno(), 1 << 16):
            said += more
        self.process.join(600)
        assert self.process.exitcode is not None
        return self.process.exitcode, said.decode(errors="replace")


def _command(words: list[str], errors: Connection, limit: Limit | None) -> None:
    os.dup2(errors.fileno(), sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    errors.close()
    torch.set_num_threads(1)
    processes.HANGING_SECONDS = HANGING_SECONDS
    if limit:
        resource.setrlimit(limit[0], (limit[1], limit[1]))
    sys.exit(main(words))


def call(words: list[str], capsys: Any, seconds: int = 60) -> tuple[int, str]:
    """A command in this process: its exit code, and what it says is wrong. It must end within so many seconds of
    computing, and must not wait for what does not come; a busy machine may take its time."""

    def late(*_: object) -> None:
        raise AssertionError(f"fedseq {' '.join(words)} took more than {seconds} seconds")

    capsys.readouterr()
    before = [(kind, signal.signal(kind, late)) for kind in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(20 * seconds)
    try:
        code = main(words)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in before:
            signal.signal(kind, handler)
    return code, capsys.readouterr().err


def wait_for(condition: Any, seconds: float = 1200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
