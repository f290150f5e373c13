"""A command gets a signal at any moment: it ends soon, as documented, loses nothing and leaves nobody behind.

FEDSEQ_SOAK=1 sends 200 to each command, and 50 each of the others.
"""

import os
import random
import secrets
import signal
import subprocess
import tempfile
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

import fedseq
import watchdog
from fedseq.basics.processes import usable_cores
from fedseq.runs.folder import CONFIG, RunFolder
from helpers import FEDSEQ, files_of, is_running, marked, wait_for

from .harness import SOAK, some

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(36000),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc"),
]
FIRST, LAST = 0.05, 6.0  # seconds after the start, between which a signal comes
SHORTLY = 0.3  # seconds after the first, within which a second one comes
SECONDS = 5.0  # until it has ended, on a machine with a core for each process that has work
SMALL = ["--model", "mlp", "--num-clients", "20", "--rounds", "150"]
PRETRAIN = ["--pretrain-epochs", "2"]
COMMANDS = {
    "run": ["run", "--algorithm", "fedseq", *SMALL, *PRETRAIN, "--engine", "processes", "--workers", "2"],
    "sweep": ["sweep", "--algorithm", "fedavg,fedseqinter", *SMALL, *PRETRAIN, "--jobs", "2"],
    "paper": ["paper", "table1", "--only", "alpha=0,algorithm=fedavg|fedseq", "--seeds", "0", "--jobs", "2", "--yes"],
}
IGNORING = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"]  # as a shell starts what is in the background, and nohup


@pytest.mark.parametrize("command", COMMANDS)
def test_one_signal(command: str, dice: random.Random, counts: "Counter[str]", tmp_path: Path) -> None:
    for number in range(some(200) if SOAK else 3):
        Trial(command, tmp_path / str(number), dice).send(dice.choice((signal.SIGINT, signal.SIGTERM))).check(counts)


def test_two_signals(dice: random.Random, counts: "Counter[str]", tmp_path: Path) -> None:
    """The second one ends at once what the first one asked to save."""
    for number in range(some(50) if SOAK else 3):
        trial = Trial(dice.choice(sorted(COMMANDS)), tmp_path / str(number), dice)
        trial.send(signal.SIGINT)
        trial.send(dice.choice((signal.SIGINT, signal.SIGTERM)), SHORTLY * dice.random()).check(counts)


def test_signals_that_were_ignored(dice: random.Random, counts: "Counter[str]", tmp_path: Path) -> None:
    """A hang-up still is, and the others are not."""
    for number in range(some(50) if SOAK else 3):
        trial = Trial(dice.choice(sorted(COMMANDS)), tmp_path / str(number), dice, ignoring=True)
        trial.hang_up()
        trial.send(dice.choice((signal.SIGINT, signal.SIGTERM))).check(counts)


class Trial:
    """A command that has been started, and a moment for the first signal."""

    def __init__(self, command: str, folder: Path, dice: random.Random, ignoring: bool = False) -> None:
        self.command, self.folder, self.ignoring, self.mark = command, folder, ignoring, secrets.token_hex(8)
        folder.mkdir()
        self.said = folder / "said"
        self.ready = self.late = True
        words = [*(IGNORING if ignoring else []), *FEDSEQ, *COMMANDS[command], "--out", str(folder / "out")]
        with self.said.open("w") as output:
            self.process = subprocess.Popen(
                words, env={**os.environ, watchdog.VARIABLE: f"{os.environ[watchdog.VARIABLE]}:{self.mark}"},
                cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.begun = self.sent = time.monotonic()
        self.moment = FIRST + (LAST * min(_load(), 3.0) - FIRST) * dice.random()  # on a busy machine all takes longer

    def hang_up(self) -> None:
        """Half-way to the first signal."""
        self._wait(self.moment / 2)
        self.process.send_signal(signal.SIGHUP)

    def send(self, number: signal.Signals, after: float | None = None) -> "Trial":
        """At its moment, or so many seconds after the signal before. Only the first may come before Python is ready."""
        self._wait(self.moment if after is None else self.sent - self.begun + after)
        if after is None:
            if self.ignoring:  # until then it is really ignored
                wait_for(lambda: self.process.poll() is not None or _heeds(self.process.pid))
            self.ready, self.late = _heeds(self.process.pid), self.process.poll() is not None
        self.process.send_signal(number)
        self.sent = time.monotonic()
        return self

    def check(self, counts: "Counter[str]") -> None:
        load = _load()
        self._wait(self.sent - self.begun + 60 * load)
        took, said = time.monotonic() - self.sent, self.said.read_text()
        told = f"{self.command} got a signal after {self.sent - self.begun:.3f} s, ended {took:.1f} s later with code"
        told = f"{told} {self.process.returncode} at a load of {load:.1f}, and said:\n{said}"
        assert self.process.returncode is not None, told
        assert took < SECONDS * load, told
        assert "Traceback" not in said or not self.ready, told
        kind = f"{self.command}: {self.process.returncode}"
        if self.late:
            assert self.process.returncode == 0, told
            counts[f"{kind}, before the signal"] += 1
        elif self.ready:
            assert self.process.returncode == 130 or (self.process.returncode == 0 and self._complete()), told
            counts[kind] += 1
        else:  # Python itself was being loaded, and the system ended it
            counts[f"{kind}, before the first line of ours"] += 1
        wait_for(lambda: not marked(watchdog.VARIABLE, self.mark), SECONDS * load)
        for config in self._configs():
            assert files_of(fedseq.resume(config.parent).folder) == _undisturbed(config.read_text()), told
            counts[f"{self.command}: runs that ended with the same bytes"] += 1
        counts[f"{self.command}: longer than {SECONDS:g} s"] += took > SECONDS

    def _configs(self) -> list[Path]:
        return sorted((self.folder / "out").rglob(CONFIG))

    def _complete(self) -> bool:
        return all(fedseq.read_run(config.parent).finished for config in self._configs())

    def _wait(self, seconds: float) -> None:
        """Until so long after the start, or until it has ended."""
        while self.process.poll() is None and time.monotonic() < self.begun + seconds:
            time.sleep(0.002)


def _load() -> float:
    """How many processes want each core, but 1 at least."""
    return max(1.0, os.getloadavg()[0] / usable_cores())


def _heeds(pid: int) -> bool:
    """Whether it has a handler for SIGTERM, which no Python has by itself."""
    if not is_running(pid):
        return False
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return bool(int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


@lru_cache
def _undisturbed(config: str) -> dict[str, bytes]:
    """What a run with this config comes to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, CONFIG).write_text(config)
        return files_of(fedseq.run(RunFolder(Path(folder)).read_config(), Path(folder, "run"), engine="serial").folder)
