"""Processes that outlive the command that started them, and are found again without ever taking another for them.

We end only processes that we started, and a process itself proves that: it carries a mark in its environment that was
drawn for it, and belongs to our user. A file says which mark to look for, never whom to end: numbers are used again,
and anybody may have written the file. Helpers inherit the mark, and are found by it when they have lost their parent;
by descent where an environment cannot be read.
"""

import contextlib
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_for_writing

MARK = "FEDSEQ_FEDERATION"
POLL = 0.1
KILL_SECONDS = 5.0
LOADING_SECONDS = 60.0


@dataclass(frozen=True)
class Process:
    pid: int
    mark: str

    @property
    def alive(self) -> bool:
        return mark_of(self.pid) == self.mark


def recorded(facts: Any, file: Path) -> Process:
    """The process that `start` wrote into this file; anything that it cannot have written is refused."""
    match facts:
        case {"pid": pid, "mark": str(mark)} if type(pid) is int and pid > 0 and re.fullmatch("[0-9a-f]{32}", mark):
            return Process(pid, mark)
    raise FedSeqError(
        f"{file} names a process that fedseq did not start, and none is ended for it. If something of this federation "
        "still runs, stop it by hand. Then remove the file."
    )


def start(words: Sequence[str], environment: dict[str, str], folder: Path, log: Path) -> Process:
    """Detached: it has a session of its own, reads nothing, and writes into a new log; the log before is kept."""
    mark = secrets.token_hex(16)
    if log.exists():
        log.replace(log.with_suffix(".old.log"))
    with open_for_writing(log, os.O_APPEND) as output:
        child = subprocess.Popen(
            words, env={**environment, MARK: mark}, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    # A program that has just been loaded has no environment yet, and would be taken for one that has ended.
    wait_until(lambda: mark_of(child.pid) == mark or child.poll() is not None, LOADING_SECONDS)
    return Process(child.pid, mark)


def stop(processes: Collection[Process], patience: float) -> None:
    """Ask them to end, and with them their helpers; what is left after this time is made to."""
    helpers = family(processes)
    for asked in ([found for found in helpers if found.pid in {process.pid for process in processes}], helpers):
        for found in asked:
            with contextlib.suppress(psutil.Error):  # it has just ended
                found.terminate()
        if wait_until(lambda: not any(map(_runs, helpers)), patience):
            break
    kill(processes)


def kill(processes: Collection[Process]) -> None:
    """At once, with all their helpers; again for those that were being started meanwhile."""
    while helpers := family(processes):
        for found in helpers:
            with contextlib.suppress(psutil.Error):
                found.kill()
        wait_until(lambda: not any(map(_runs, helpers)), KILL_SECONDS)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def family(roots: Collection[Process]) -> set[psutil.Process]:
    """Whoever carries their marks, and the descendants of these."""
    marks = {process.mark for process in roots}
    found = {process for process in psutil.process_iter() if mark_of(process.pid) in marks}
    for process in list(found):
        with contextlib.suppress(psutil.Error):
            found |= set(process.children(recursive=True))
    return {process for process in found if _runs(process)}


def mark_of(pid: int) -> str | None:
    """The mark of a process that belongs to our user."""
    try:
        process = psutil.Process(pid)
        mark = process.environ().get(MARK)
        return mark if mark and process.username() == psutil.Process().username() else None
    except (psutil.Error, OSError):
        return None


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than the remains that its parent has not collected yet."""
    with contextlib.suppress(psutil.Error):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return True
    return False
