"""Who computes what, when, and what happens if that fails: for engines that compute in other processes.

The longest chain goes first. A request whose worker dies is asked anew, with the same outcome. Evaluations are cut into
chunks, which are computed when no job waits for a worker.

A worker answers one request after another until it is killed, and keeps nothing between them.
"""

import ctypes
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Generic, TypeVar

from torch import Tensor

from fedseq.basics.errors import FedSeqError, is_out_of_memory
from fedseq.engines.transfer import forget_spare_pages
from fedseq.training.chains import run_job
from fedseq.training.evaluation import BatchSums, Evaluation, evaluate_batches, fold, num_batches
from fedseq.training.jobs import Job, Result, Task, never
from fedseq.training.weights import FlatModel

DEATHS_PER_REQUEST = 5  # after so many, the request itself must be what kills workers
CHUNKS_PER_WORKER = 4  # of an evaluation: small enough that no worker waits long for another

Handle = TypeVar("Handle", bound=Hashable)
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Batches:
    """Evaluate these batches of the test set."""

    weights: Tensor
    numbers: range


Request = Job | Batches
Reply = Result | list[BatchSums] | Exception


class WorkerError(RuntimeError):
    """Something went wrong in a worker; the text holds its traceback."""


@dataclass
class _Asked:
    request: Request
    deaths: int = 0  # of workers that were at it


@dataclass(eq=False)
class _Order:
    """Requests that were given together, and what has come of them so far."""

    waiting: deque[_Asked]
    shelf: Any  # what the place keeps for requests that share it
    done: list[tuple[Any, Any]] = field(default_factory=list)  # requests with their replies
    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.error = error
        self.waiting.clear()


def most_requests(task: Task) -> int:
    """How many requests there can be at once, so that more workers would have nothing to do."""
    return max(len(task.clients), num_batches(task.test), 1)


class Dispatcher(ABC, Generic[Handle]):
    """An engine, but for the place: how a request is sent there, waited for and given up."""

    def __init__(self, task: Task):
        self.task = task
        self.orders: list[_Order] = []  # the first is served first: jobs stand before evaluations
        self.busy: dict[Handle, tuple[_Order, _Asked]] = {}
        self.capacity = 0  # the room there was when requests came last

    @abstractmethod
    def room(self) -> int:
        """How many requests can be in the place at once."""

    @abstractmethod
    def send(self, request: Request, shelf: Any) -> Handle: ...

    @abstractmethod
    def wait(self, handles: Sequence[Handle]) -> list[tuple[Handle, Reply | None]]:
        """Wait a second at most for some of them to end; the reply is None where the worker died."""

    @abstractmethod
    def cancel(self, handle: Handle) -> None:
        """Its reply is no longer wanted."""

    def shelf(self, requests: Sequence[Request]) -> Any:
        """A place to keep what several of these requests share."""
        return None

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        def length(job: Job) -> int:
            return job.epochs * sum(len(self.task.clients[client]) for client, _ in job.hops)

        longest_first = sorted(jobs, key=length, reverse=True)  # so that none of them is left over at the end
        order = self._accept(0, longest_first)
        try:
            while self.goes_on(order) and not stopped():
                self._collect()
                self._hand_out()
                while order.done:  # while the workers go on
                    job, result = order.done.pop(0)
                    yield replace(result, start=job.start)
        finally:  # whoever stopped listening does not want the rest
            self.orders.remove(order)
            self._take_back([handle for handle, (owner, _) in self.busy.items() if owner is order or stopped()])

    def begin_evaluation(self, weights: Tensor) -> "_PendingEvaluation":
        batches = range(num_batches(self.task.test))
        size = max(1, len(batches) // (CHUNKS_PER_WORKER * self.room()))
        chunks = [Batches(weights, batches[first : first + size]) for first in batches[::size]]
        return _PendingEvaluation(self, self._accept(len(self.orders), chunks))

    def evaluate(self, weights: Tensor) -> Evaluation:
        return self.begin_evaluation(weights).result()

    def close(self) -> None:
        for order in self.orders:
            order.fail(RuntimeError("the engine was closed before this was computed"))
        self.busy.clear()
        forget_spare_pages()

    def finish(self, order: _Order, stopped: Callable[[], bool]) -> None:
        """A worker that hangs does not delay a stop for long: whatever is under way then is begun anew elsewhere."""
        restarted = stopped()
        while self.goes_on(order):
            self._collect()
            if stopped() and not restarted:
                restarted = True
                self._take_back(list(self.busy))
            self._hand_out()
        if order in self.orders:
            self.orders.remove(order)

    def _accept(self, place: int, requests: Sequence[Request]) -> _Order:
        order = _Order(deque(map(_Asked, requests)), self.shelf(requests))
        self.orders.insert(place, order)
        self.capacity = self.room()
        self._hand_out()
        return order

    def goes_on(self, order: _Order) -> bool:
        if order.error is not None:
            raise order.error
        return bool(order.waiting) or any(owner is order for owner, _ in self.busy.values())

    def _hand_out(self) -> None:
        for order in self.orders:
            while order.waiting and len(self.busy) < self.capacity:
                asked = order.waiting.popleft()
                self.busy[self.send(asked.request, order.shelf)] = order, asked

    def _collect(self) -> None:
        for handle, reply in self.wait(list(self.busy)):
            order, asked = self.busy.pop(handle)
            if isinstance(reply, Exception):
                order.fail(reply)
            elif reply is not None:
                order.done.append((asked.request, reply))
            elif order.error is None:
                asked.deaths += 1
                order.waiting.appendleft(asked)
                if asked.deaths == DEATHS_PER_REQUEST:
                    order.fail(_too_many_deaths(asked.request))

    def _take_back(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            order, asked = self.busy.pop(handle)
            self.cancel(handle)
            if order in self.orders:
                order.waiting.appendleft(asked)


@dataclass(frozen=True)
class _PendingEvaluation:
    dispatcher: Dispatcher[Any]
    order: _Order

    @property
    def ready(self) -> bool:
        return not self.dispatcher.goes_on(self.order)

    def result(self, stopped: Callable[[], bool] = never) -> Evaluation:
        """Of chunks that came back in any order and are folded in theirs."""
        self.dispatcher.finish(self.order, stopped)
        in_order = sorted(self.order.done, key=lambda done: done[0].numbers.start)
        return fold(self.dispatcher.task, chain.from_iterable(sums for _, sums in in_order))


def _too_many_deaths(request: Request) -> FedSeqError:
    what = "evaluation"
    if isinstance(request, Job):
        what = f"the chain of clients {[client for client, _ in request.hops]}"
    return FedSeqError(
        f"{what} killed {DEATHS_PER_REQUEST} workers in a row, or made them hang. Most often the machine is out of "
        "memory: use fewer --workers or a smaller --batch-size."
    )


def caught(compute: Callable[[], Outcome]) -> Outcome | Exception:
    """What goes wrong is returned: it is raised where the request came from."""
    try:
        return compute()
    except FedSeqError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever it is
        if is_out_of_memory(error):
            return FedSeqError("a worker ran out of memory. Use fewer --workers or a smaller --batch-size.")
        return WorkerError(f"a worker process failed; --engine serial fails in place.\n{traceback.format_exc()}")


def answer(task: Task, model: FlatModel, request: Request) -> Reply:
    """To be sent before the next request is answered: a result's end lies in the model."""
    if isinstance(request, Batches):
        return evaluate_batches(task, model, request.weights, request.numbers)
    result = run_job(task, model, request, lasting=False)
    return replace(result, start=result.start[:0])  # whoever asked knows what the job started from


def keep_freed_memory() -> None:
    """By default glibc gives large temporaries back to the system, which then faults in fresh pages for every batch."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # other C libraries do without
        for option, value in ((mmap_threshold, 1 << 30), (trim_threshold, 1 << 30), (top_pad, 1 << 26)):
            library.mallopt(option, value)
