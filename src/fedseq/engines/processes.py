"""Jobs on worker processes of one torch thread each. Which worker computes what does not change a bit of it.

Workers are forked. So they share the parent's data, clients and code (a model class of a notebook, a lambda) without a
copy, start in milliseconds, and a dead one is replaced as quickly. Forking a process that has threads is safe only if
the child needs nothing those threads may have held. A worker does not: it computes with one torch thread, so it never
waits for OpenMP's pool, which does not survive a fork; it takes no locks of the parent's and writes to no stream; and
it exits without running the parent's exit handlers. PyTorch's own data loaders rest on the same rules. CUDA does
not survive a fork once it is in use, so on a GPU this process leaves it to the workers, each of which has a copy of the
data there. Outside Linux system libraries do not survive one: there the serial engine steps in.

A worker that has a request and uses no CPU time for a minute hangs: it was stopped, or waits in the kernel for
something that does not come. It is killed and replaced like one that died. An endless loop cannot be told apart from
honest work, and is left alone.
"""

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from fedseq.algorithms.base import Algorithm
from fedseq.basics.errors import FedSeqError
from fedseq.basics.processes import end_with_parent, usable_cores
from fedseq.engines.dispatcher import Dispatcher, Reply, Request, answer, caught, keep_freed_memory, most_requests
from fedseq.engines.serial import SerialEngine
from fedseq.engines.transfer import Mailbox
from fedseq.options.config import Config
from fedseq.training.jobs import Job, Result, Task, never
from fedseq.training.sgd import build, lay_out, one_thread
from fedseq.training.weights import FlatModel

HANGING_SECONDS = 60  # without CPU time, after which a worker that has a request is taken to hang


def open_processes(task: Task, config: Config) -> "ProcessEngine | SerialEngine":
    """One worker per core by default; the serial engine, and a warning, where there cannot be workers."""
    obstacle = _obstacle()
    if obstacle and config.device != "cpu":
        raise FedSeqError(f"there cannot be worker processes on {config.device}: {obstacle}. Use --engine serial.")
    if obstacle:
        warnings.warn(f"clients are computed one after another in this process: {obstacle}.", stacklevel=2)
        return SerialEngine(task)
    return ProcessEngine(task, min(config.workers or usable_cores(), most_requests(task)), config.device)


def _obstacle() -> str | None:
    if not sys.platform.startswith("linux"):
        return "worker processes need Linux"
    if torch.cuda.is_initialized():
        return "CUDA is in use already, and does not survive the start of worker processes"
    if multiprocessing.current_process().daemon:
        return "it is a worker process itself"
    return None


class _Worker:
    """The parent's side of a worker process."""

    def __init__(self, task: Task, device: str):
        context = multiprocessing.get_context("fork")
        self.inbox, self.outbox = Mailbox(), Mailbox()
        self.connection, far_end = context.Pipe()
        arguments = (task, device, self.inbox, self.outbox, far_end, os.getpid())
        self.process = context.Process(target=serve, args=arguments, daemon=True, name="fedseq-worker")
        with warnings.catch_warnings():  # about threads, see above
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        far_end.close()  # now its death closes the pipe
        self.cpu_time: list[str] = []
        self.seconds_without = 0

    def send(self, request: Request) -> None:
        self.seconds_without = 0
        where = self.inbox.write(request, unchanged=request.start if isinstance(request, Job) else request.weights)
        with contextlib.suppress(ConnectionError):  # it is dead, as `receive` will find
            self.connection.send_bytes(where)

    def receive(self) -> Reply | None:
        """None if it died."""
        try:
            where = self.connection.recv_bytes()
        except (EOFError, OSError):
            return None
        reply: Reply = self.outbox.read(where, copy=True)
        return reply

    def hangs(self) -> bool:
        """Counts calls, one a second: time in which this process was stopped itself does not count."""
        cpu_time = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        self.seconds_without = self.seconds_without + 1 if cpu_time == self.cpu_time else 0
        self.cpu_time = cpu_time
        return self.seconds_without >= HANGING_SECONDS

    def kill(self) -> None:
        if self.connection.closed:  # killed before, and there were too few open files to begin another
            return
        self.process.kill()
        self.process.join(timeout=5)  # a process that waits in the kernel may not even die
        if self.process.exitcode is not None:
            self.process.close()
        self.connection.close()
        self.inbox.close()
        self.outbox.close()


class ProcessEngine(Dispatcher[_Worker]):
    def __init__(self, task: Task, workers: int, device: str = "cpu"):
        with one_thread():  # before the workers are made, so that they share it
            super().__init__(lay_out(task, build(task)))
        self.device = device
        self.workers: list[_Worker] = []
        try:
            for _ in range(workers):
                self.workers.append(_Worker(self.task, device))
        except BaseException:  # too few open files, or Ctrl-C: those that were made would be waited for at the exit
            self.close()
            raise

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        unsendable = next((job.algorithm for job in jobs if not _can_be_sent(job.algorithm)), None)
        if unsendable is None:
            return super().run(jobs, stopped)
        reason = f"algorithm '{unsendable.name}' cannot be sent to worker processes"
        remedy = "Make it of functions that are defined at the top of a module"
        if self.device != "cpu":
            raise FedSeqError(f"{reason}. {remedy}, or use --engine serial.")
        warnings.warn(f"{reason}, so its clients are computed one after another. {remedy}.", stacklevel=2)
        return SerialEngine(self.task).run(jobs, stopped)

    def room(self) -> int:
        return len(self.workers)

    def send(self, request: Request, shelf: Any) -> _Worker:
        worker = next(worker for worker in self.workers if worker not in self.busy)
        worker.send(request)
        return worker

    def wait(self, handles: Sequence[_Worker]) -> list[tuple[_Worker, Reply | None]]:
        ready = connection.wait([worker.connection for worker in handles], timeout=1)
        ended = [(worker, worker.receive()) for worker in handles if worker.connection in ready]
        if not ready:
            ended = [(worker, None) for worker in handles if worker.hangs()]
        for worker, reply in ended:
            if reply is None:
                self.cancel(worker)
        return ended

    def cancel(self, handle: _Worker) -> None:
        handle.kill()
        self.workers[self.workers.index(handle)] = _Worker(self.task, self.device)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers = []
        super().close()


def _can_be_sent(algorithm: Algorithm) -> bool:
    try:
        pickle.dumps(algorithm)
    except (pickle.PicklingError, AttributeError, TypeError):  # what pickle raises for lambdas and local functions
        return False
    return True


def serve(
    task: Task, device: str, inbox: Mailbox, outbox: Mailbox, far_end: connection.Connection, parent: int
) -> None:
    """A device other than the task's is begun here: CUDA does not survive a fork, but may be begun after it."""
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGHUP):  # which are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not end_with_parent(parent, signal.SIGKILL):
        os._exit(1)
    keep_freed_memory()
    gc.freeze()  # the collector would write to the parent's objects, and so copy their pages
    made: list[tuple[Task, FlatModel]] = []

    def reply(where: bytes) -> bytes:
        if not made:
            own = task if device == task.device else task.on(device)
            made.append((own, build(own)))
        return outbox.write(answer(*made[0], inbox.read(where, copy=False, device=device)))

    while True:
        written = caught(partial(reply, far_end.recv_bytes()))
        far_end.send_bytes(written if isinstance(written, bytes) else outbox.write(written))
