"""Many tasks at a time, each worker a process with one thread of its own."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from fedseq.paper.tasks import Task

TICK = 0.3  # seconds between looks at the running tasks
PATIENCE = 60.0  # seconds that workers have to save their runs after Ctrl-C


@dataclass(frozen=True)
class Event:
    kind: Literal["started", "ended", "tick"]
    task: Task | None = None
    outcome: str = ""


class _Worker:
    """One process; started again if it dies with its task."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.errors: IO[str] | None = None

    def do(self, task: Task) -> str:
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(task.to_json() + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except OSError:
            answer = ""
        return answer or self._death()

    def _start(self) -> None:
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - as long as it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedseq.paper.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def _death(self) -> str:
        assert self.process is not None
        assert self.errors is not None
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.errors.close()
        self.process = None
        return (
            "interrupted"
            if code == 130
            else f"its process ended with code {code}: {said[-1] if said else 'no message'}"
        )

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


def work_through(tasks: Sequence[Task], jobs: int, report: Callable[[Event], None]) -> dict[Task, str]:
    """Every task's outcome: finished, or why not. Ctrl-C lets the workers save their runs and is raised again."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    stopping = threading.Event()
    workers = [_Worker() for _ in range(min(jobs, len(tasks)))]
    threads = [threading.Thread(target=_serve, args=(worker, waiting, events, stopping)) for worker in workers]
    outcomes: dict[Task, str] = {}
    for thread in threads:
        thread.start()
    try:
        while len(outcomes) < len(tasks):
            try:
                event = events.get(timeout=TICK)
            except queue.Empty:
                event = Event("tick")
            if event.kind == "ended" and event.task is not None:
                outcomes[event.task] = event.outcome
            report(event)
    finally:
        stopping.set()
        if len(outcomes) < len(tasks):
            _stop(workers, threads)
        for thread in threads:
            thread.join()
    return outcomes


def _serve(
    worker: _Worker, waiting: "queue.SimpleQueue[Task]", events: "queue.SimpleQueue[Event]", stopping: threading.Event
) -> None:
    while not stopping.is_set():
        try:
            task = waiting.get_nowait()
        except queue.Empty:
            break
        events.put(Event("started", task))
        events.put(Event("ended", task, worker.do(task)))
    worker.close()


def _stop(workers: Sequence[_Worker], threads: Sequence[threading.Thread]) -> None:
    """Ask for a save; those who do not listen are ended."""
    for worker in workers:
        worker.interrupt()
    try:
        for thread in threads:
            thread.join(PATIENCE)
    except KeyboardInterrupt:  # a second Ctrl-C
        pass
    for worker in workers:
        worker.interrupt(signal.SIGKILL)


def default_jobs() -> int:
    """One for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
