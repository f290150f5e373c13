"""Many assignments at a time, each worker a process with one thread of its own."""

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from fedseq.basics import stopping
from fedseq.basics.processes import python, usable_cores
from fedseq.options.config_files import read_number
from fedseq.options.option import AT_LEAST_1
from fedseq.sweep.assignments import Assignment

INTERRUPTED = "interrupted"  # the outcome of an assignment that was stopped
TICK = 0.3  # seconds between looks at the running assignments
PATIENCE = 60.0  # seconds that workers have to save their runs after a request to stop


@dataclass(frozen=True)
class Event:
    kind: Literal["started", "ended", "tick"]
    assignment: Assignment | None = None
    outcome: str = ""


class _WorkerProcess:
    """One process; started again if it dies with its assignment."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.errors: IO[str] | None = None
        self.starting = threading.Lock()
        self.stopped = False

    def do(self, assignment: Assignment) -> str:
        with self.starting:
            if self.stopped:
                return INTERRUPTED
            if self.process is None:
                self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(assignment.to_json() + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except OSError:
            answer = ""
        return answer or self._death()

    def _start(self) -> None:
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - kept open
        command = python("-m", "fedseq.sweep.work", str(os.getpid()))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def _death(self) -> str:
        assert self.process is not None
        assert self.errors is not None
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.errors.close()
        self.process = None
        if code == stopping.INTERRUPTED:
            return INTERRUPTED
        return f"its process ended with code {code}: {said[-1] if said else 'no message'}"

    def stop(self, number: signal.Signals) -> None:
        """By this signal, also if it is just being started."""
        with self.starting:
            self.stopped = True
            process = self.process
        if process is not None:
            process.send_signal(number)

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


def work_through(
    assignments: Sequence[Assignment], jobs: int, report: Callable[[Event], None]
) -> dict[Assignment, str]:
    """Every assignment's outcome: finished, or why not. A request to stop is raised as KeyboardInterrupt, when the
    workers have saved their runs."""
    waiting: queue.SimpleQueue[Assignment] = queue.SimpleQueue()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    for assignment in assignments:
        waiting.put(assignment)
    enough = threading.Event()
    workers = [_WorkerProcess() for _ in range(min(jobs, len(assignments)))]
    threads = [threading.Thread(target=_serve, args=(worker, waiting, events, enough)) for worker in workers]
    outcomes: dict[Assignment, str] = {}
    with stopping.stop_requests() as stop_requested:
        for thread in threads:
            thread.start()
        try:
            while len(outcomes) < len(assignments) and not stop_requested():
                try:
                    event = events.get(timeout=TICK)
                except queue.Empty:
                    event = Event("tick")
                if event.kind == "ended" and event.assignment is not None:
                    outcomes[event.assignment] = event.outcome
                report(event)
        finally:
            enough.set()
            if len(outcomes) < len(assignments):
                _stop(workers, threads)
            for thread in threads:
                thread.join()
    if len(outcomes) < len(assignments):
        raise KeyboardInterrupt
    return outcomes


def _serve(
    worker: _WorkerProcess,
    waiting: "queue.SimpleQueue[Assignment]",
    events: "queue.SimpleQueue[Event]",
    enough: threading.Event,
) -> None:
    while not enough.is_set():
        try:
            assignment = waiting.get_nowait()
        except queue.Empty:
            break
        events.put(Event("started", assignment))
        events.put(Event("ended", assignment, worker.do(assignment)))
    worker.close()


def _stop(workers: Sequence[_WorkerProcess], threads: Sequence[threading.Thread]) -> None:
    """Ask for a save; those who do not listen are ended."""
    for worker in workers:
        worker.stop(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        worker.stop(signal.SIGKILL)


def read_jobs(text: str | None) -> int:
    """How many at a time: as told, or one for each core this process may use."""
    if text is not None:
        jobs: int = read_number("--jobs", text, AT_LEAST_1, int)
        return jobs
    return usable_cores()
