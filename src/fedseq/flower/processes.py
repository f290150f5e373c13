"""Processes that outlive the command that started them, and are found again without ever taking another for them.

A process is its number and the time it was started: numbers are used again. Its helpers are its descendants; and since
a helper of a killed process has lost its parent, all carry a mark in their environment.
"""

import contextlib
import functools
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "FEDSEQ_FEDERATION"
POLL = 0.1
KILL_SECONDS = 5.0
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    started: str
    mark: str = ""

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started


def start(words: Sequence[str], environment: dict[str, str], folder: Path, log: Path) -> Process:
    """Detached: it has a session of its own, reads nothing, and writes into its log."""
    mark = secrets.token_hex(16)
    with log.open("ab") as output:
        child = subprocess.Popen(
            words, env={**environment, MARK: mark}, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    _children[child.pid] = child
    return Process(child.pid, _started(child.pid) or "", mark)


_children: dict[int, subprocess.Popen[bytes]] = {}  # ours are to be collected when they end


def stop(processes: Collection[Process], patience: float) -> None:
    """Ask them to end, and with them their helpers; what is left after this time is made to."""
    family = _family(processes)
    for process in processes:
        _signal(process, signal.SIGTERM)
    if not wait_until(lambda: not any(process.alive for process in family), patience):
        for process in family:
            _signal(process, signal.SIGTERM)
        wait_until(lambda: not any(process.alive for process in family), patience)
    kill(processes)


def kill(processes: Collection[Process]) -> None:
    """At once, with all their helpers; again for those that were being started meanwhile."""
    while family := _family(processes):
        for process in family:
            _signal(process, signal.SIGKILL)
        wait_until(lambda: not any(process.alive for process in family), KILL_SECONDS)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def _signal(process: Process, kind: signal.Signals) -> None:
    if process.alive:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, kind)


def _family(roots: Collection[Process]) -> set[Process]:
    """The processes, their descendants, and whoever else carries their mark."""
    table = _table()
    marks = {f"{MARK}={process.mark}".encode() for process in roots if process.mark}
    numbers = {process.pid for process in roots if process.alive}
    numbers |= {pid for pid in table if not marks.isdisjoint(_environment(pid))}
    while more := {pid for pid, parent in table.items() if parent in numbers} - numbers:
        numbers |= more
    return {Process(pid, started) for pid in numbers if (started := _started(pid))}


def _table() -> dict[int, int]:
    """Each process and its parent."""
    if PROC.is_dir():
        found = {int(path.name): _stat(int(path.name)) for path in PROC.iterdir() if path.name.isdigit()}
        return {pid: int(fields[1]) for pid, fields in found.items() if fields}
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines())}


def _environment(pid: int) -> list[bytes]:
    """Where it can be read; elsewhere descent has to do."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _started(pid: int) -> str | None:
    """When the process was started; None when there is none, or only its remains."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
        return None
    if PROC.is_dir():
        fields = _stat(pid)
        return f"{_boot()} {fields[19]}" if fields and fields[0] != "Z" else None
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, started = subprocess.run(asked, capture_output=True, text=True).stdout.strip().partition(" ")
    return " ".join(started.split()) if state and not state.startswith("Z") else None


@functools.cache
def _boot() -> str:
    """Linux counts from the start of the machine, which has to be told apart from the one before."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields after the command's name, which may hold anything: state, parent, ..., start time (the 20th)."""
    try:
        return re.sub(r"^.*\)\s", "", (PROC / str(pid) / "stat").read_text(errors="replace"), flags=re.DOTALL).split()
    except OSError:
        return []
