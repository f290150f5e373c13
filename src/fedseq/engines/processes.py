"""Jobs on worker processes of one torch thread each. Which worker computes what does not change a bit of it.

Workers are forked. So they share the parent's data, clients and code (a model class of a notebook, a lambda) without a
copy, start in milliseconds, and a dead one is replaced as quickly. Forking a process that has threads is safe only if
the child needs nothing those threads may have held. A worker does not: it computes with one torch thread, so it never
waits for OpenMP's pool, which does not survive a fork; it takes no locks of the parent's and writes to no stream; and
it exits without running the parent's exit handlers. PyTorch's own data loaders rest on the same rules. An accelerator
in use does not survive a fork, and outside Linux system libraries do not: there the serial engine steps in.
"""

import contextlib
import multiprocessing
import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedseq.algorithms.base import Algorithm
from fedseq.config import Config
from fedseq.engines.mailbox import Mailbox
from fedseq.engines.serial import SerialEngine
from fedseq.engines.worker import Batches, Reply, serve
from fedseq.errors import FedSeqError
from fedseq.evaluation import BatchSums, Evaluation, fold, num_batches
from fedseq.jobs import Job, Result, Task
from fedseq.training import build, one_thread, prepare

DEATHS_PER_REQUEST = 5  # after so many, the request itself must be what kills workers
CHUNKS_PER_WORKER = 4  # of an evaluation: small enough that no worker waits long for another

Request = TypeVar("Request", Job, Batches)


def open_processes(task: Task, config: Config) -> "ProcessEngine | SerialEngine":
    """One worker per core unless told; the serial engine, and a warning, where there can't be workers."""
    obstacle = _obstacle(task)
    if obstacle:
        warnings.warn(f"clients are computed one after another in this process: {obstacle}.", stacklevel=2)
        return SerialEngine(task)
    return ProcessEngine(task, config.workers or len(os.sched_getaffinity(0)))


def _obstacle(task: Task) -> str | None:
    if not sys.platform.startswith("linux"):
        return "worker processes need Linux"
    if torch.device(task.device).type != "cpu":
        return f"device {task.device} is not shared between processes"
    if torch.cuda.is_initialized():
        return "CUDA is in use already, and does not survive the start of worker processes"
    if multiprocessing.current_process().daemon:
        return "it is a worker process itself"
    return None


class ProcessEngine:
    def __init__(self, task: Task, workers: int):
        with one_thread():  # before the workers are made, so that they share it
            self.task = prepare(task, build(task))
        self.workers = [_Worker(self.task) for _ in range(workers)]

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        stuck = next((job.algorithm for job in jobs if not _can_be_sent(job.algorithm)), None)
        if stuck is not None:
            warnings.warn(
                f"algorithm '{stuck.name}' can't be sent to worker processes, so its clients are computed one after "
                "another. Make it of functions that are defined at the top of a module.",
                stacklevel=2,
            )
            yield from self.serial.run(jobs)
            return
        for job, result in self._ask(sorted(jobs, key=lambda job: length(self.task, job), reverse=True)):
            yield replace(result, start=job.start)

    @cached_property
    def serial(self) -> SerialEngine:
        return SerialEngine(self.task)

    def evaluate(self, weights: Tensor) -> Evaluation:
        return evaluate_in_chunks(self._ask, self.task, weights, len(self.workers))

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers = []

    def _ask(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Any]]:
        """Replies as they come. The request of a worker that dies goes to another, with the same outcome."""
        waiting = deque(_Asked(request) for request in requests)
        busy: dict[int, _Asked] = {}  # by the worker's place
        done: list[tuple[Request, Any]] = []
        try:
            while waiting or busy:
                self._hand_out(waiting, busy)
                yield from done  # while the workers go on
                done = list(self._collect(waiting, busy))
            yield from done
        finally:  # whoever stopped listening does not want the rest
            for place in busy if self.workers else ():
                self._replace(place)

    def _hand_out(self, waiting: "deque[_Asked]", busy: "dict[int, _Asked]") -> None:
        for place, worker in enumerate(self.workers):
            if waiting and place not in busy:
                busy[place] = waiting.popleft()
                worker.send(busy[place].request)

    def _collect(self, waiting: "deque[_Asked]", busy: "dict[int, _Asked]") -> Iterator[tuple[Any, Any]]:
        """Waits for the next replies; what a worker was doing when it died is asked anew."""
        ready = wait([self.workers[place].connection for place in busy])
        for place in [place for place in busy if self.workers[place].connection in ready]:
            asked, reply = busy.pop(place), self.workers[place].receive()
            if isinstance(reply, Exception):
                raise reply
            if reply is not None:
                yield asked.request, reply
                continue
            self._replace(place)
            asked.deaths += 1
            if asked.deaths == DEATHS_PER_REQUEST:
                raise FedSeqError(hopeless(asked.request))
            waiting.appendleft(asked)

    def _replace(self, place: int) -> None:
        self.workers[place].kill()
        self.workers[place] = _Worker(self.task)


@dataclass
class _Asked:
    request: Job | Batches
    deaths: int = 0  # of workers that were at it


class _Worker:
    """The parent's side of a worker process."""

    def __init__(self, task: Task):
        context = multiprocessing.get_context("fork")
        self.inbox, self.outbox = Mailbox(), Mailbox()
        self.connection, far_end = context.Pipe()
        arguments = (task, self.inbox, self.outbox, far_end, os.getpid())
        self.process = context.Process(target=serve, args=arguments, daemon=True, name="fedseq-worker")
        with warnings.catch_warnings():  # of threads: see above
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        far_end.close()  # now its death closes the pipe

    def send(self, request: Job | Batches) -> None:
        header = self.inbox.write(request)
        with contextlib.suppress(ConnectionError):  # it is dead, as `receive` will find
            self.connection.send_bytes(header)

    def receive(self) -> Reply | None:
        """None if it died."""
        try:
            header = self.connection.recv_bytes()
        except (EOFError, OSError):
            return None
        return self.outbox.read(header, copy=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.inbox.close()
        self.outbox.close()


def evaluate_in_chunks(
    ask: Callable[[list[Batches]], Iterator[tuple[Batches, list[BatchSums]]]], task: Task, weights: Tensor, workers: int
) -> Evaluation:
    """The evaluation by whoever is asked, in pieces that come back in any order and are folded in theirs."""
    batches = range(num_batches(task.test))
    size = max(1, len(batches) // (CHUNKS_PER_WORKER * workers))
    chunks = [Batches(weights, batches[first : first + size]) for first in range(0, len(batches), size)]
    sums = {chunk.numbers.start: reply for chunk, reply in ask(chunks)}
    return fold(task, chain.from_iterable(sums[first] for first in sorted(sums)))


def length(task: Task, job: Job) -> int:
    """By the examples it trains on: the longest chain goes first, so that none is left over at the end."""
    return job.epochs * sum(len(task.clients[client]) for client, _ in job.hops)


def _can_be_sent(algorithm: Algorithm) -> bool:
    try:
        pickle.dumps(algorithm)
    except (pickle.PicklingError, AttributeError, TypeError):  # what pickle raises for lambdas and local functions
        return False
    return True


def hopeless(request: Job | Batches) -> str:
    what = (
        f"the chain of clients {[client for client, _ in request.hops]}" if isinstance(request, Job) else "evaluation"
    )
    return (
        f"{what} killed {DEATHS_PER_REQUEST} workers in a row. Most often the machine is out of memory: "
        "use fewer --workers or a smaller --batch-size."
    )
