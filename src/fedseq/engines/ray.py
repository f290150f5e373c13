"""Jobs as tasks of a Ray cluster. Which machine computes what, and how often it has to, does not change a bit of it.

Everything that a job depends on comes from the driver: the data once per run, each distinct tensor of a round once,
both through Ray's object store, and clients' memory with their jobs. So no machine but the driver's and the cluster's
head keeps anything that could be lost: a worker process has the data and a model at hand, and if it dies, or the
machine below it, its job is asked anew elsewhere.
"""

import contextlib
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import ray
import torch
from ray import exceptions
from torch import Tensor

from fedseq.engines.parcels import as_array, lasting_copy, unpack
from fedseq.engines.processes import DEATHS_PER_REQUEST, evaluate_in_chunks, hopeless, length
from fedseq.engines.ray_cluster import connected
from fedseq.engines.ray_worker import packed, ship, work
from fedseq.engines.worker import Batches, Reply, WorkerError
from fedseq.errors import FedSeqError
from fedseq.evaluation import Evaluation
from fedseq.jobs import Job, Result, Task

# A worker, its machine, or the only copy of a result is gone: the same job gives the same result elsewhere.
DEATHS = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
)

Request = TypeVar("Request", Job, Batches)


class RayEngine:
    def __init__(self, task: Task, address: str | None = None, workers: int | None = None):
        if torch.device(task.device).type != "cpu":
            raise FedSeqError(f"--engine ray computes on CPUs, not on {task.device}. Use --engine serial there.")
        self.task, self.workers = task, workers
        self.contact = contextlib.ExitStack()
        self.contact.enter_context(connected(address, workers))
        try:
            self.key = uuid.uuid4().hex
            self.shipment: ray.ObjectRef | None = ray.put(ship(task))
        except BaseException:  # also Ctrl-C: a cluster that was started must not be left behind
            self.close()
            raise

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        for job, result in self._ask(sorted(jobs, key=lambda job: length(self.task, job), reverse=True)):
            yield replace(result, start=job.start)

    def evaluate(self, weights: Tensor) -> Evaluation:
        return evaluate_in_chunks(self._ask, self.task, weights, min(_cores(), self.workers or _cores()))

    def close(self) -> None:
        self.shipment = None
        self.contact.close()

    def _room(self) -> int:
        """For requests in the cluster: a second one waits for each core, unless fewer cores are to be used."""
        return self.workers if self.workers and self.workers < _cores() else 2 * _cores()

    def _ask(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Any]]:
        """Replies as they come. What was being done where something died is asked anew, with the same outcome."""
        waiting = deque(_Asked(request) for request in requests)
        shelf = _Shelf(requests)
        room = self._room()
        busy: dict[ray.ObjectRef, _Asked[Request]] = {}
        done: list[_Asked[Request]] = []
        try:
            while waiting or busy:
                while waiting and len(busy) < room:
                    asked = waiting.popleft()
                    busy[self._send(asked.request, shelf)] = asked
                for asked in done:  # while the workers go on
                    yield asked.request, asked.reply
                done = [asked for asked in _collect(busy) if _has_reply(asked, waiting)]
                for asked in done:
                    shelf.clear(asked.request)
            for asked in done:
                yield asked.request, asked.reply
        finally:  # whoever stopped listening does not want the rest
            for reference in busy if self.shipment is not None else ():
                ray.cancel(reference)

    def _send(self, request: Job | Batches, shelf: "_Shelf") -> ray.ObjectRef:
        parcel = packed(request)  # only now: clients' memory may lie in files, and need not be read all at once
        references = [shelf.reference(tensor) for tensor in parcel.tensors]
        return work.remote(self.key, self.shipment, parcel.pickled, *references)


def _cores() -> int:
    """Of the cluster as it is now: machines come and go."""
    cores = int(ray.cluster_resources().get("CPU", 0))
    if not cores:
        raise FedSeqError("the Ray cluster has no CPU to compute on. Add a node with `ray start --address=HOST:PORT`.")
    return cores


@dataclass
class _Asked(Generic[Request]):
    request: Request
    deaths: int = 0  # of workers that were at it
    reply: Any = None


class _Shelf:
    """What requests share (the model they start from, the server's message) is stored once, until the last is done.

    What belongs to one request alone leaves the store with it.
    """

    def __init__(self, requests: Sequence[Job | Batches]):
        self.uses = Counter(id(tensor) for request in requests for tensor in _shared(request))
        self.stored: dict[int, ray.ObjectRef] = {}

    def reference(self, tensor: Tensor) -> ray.ObjectRef:
        if id(tensor) not in self.uses:
            return ray.put(as_array(tensor))
        if id(tensor) not in self.stored:
            self.stored[id(tensor)] = ray.put(as_array(tensor))
        return self.stored[id(tensor)]

    def clear(self, request: Job | Batches) -> None:
        for tensor in _shared(request):
            self.uses[id(tensor)] -= 1
            if not self.uses[id(tensor)]:
                self.stored.pop(id(tensor), None)


def _shared(request: Job | Batches) -> list[Tensor]:
    return [request.weights] if isinstance(request, Batches) else [request.start, *request.message.values()]


def _collect(busy: dict[ray.ObjectRef, _Asked[Request]]) -> Iterator[_Asked[Request]]:
    """Waits for the next ones to end."""
    ready, _ = ray.wait(list(busy), num_returns=1)
    for reference in ready:
        asked = busy.pop(reference)
        asked.reply = _receive(reference)
        yield asked


def _receive(reference: ray.ObjectRef) -> Reply | None:
    """None if a worker died of it."""
    try:
        pickled, arrays = ray.get(reference)
    except DEATHS:
        return None
    except exceptions.RayTaskError as error:
        raise WorkerError(f"a Ray worker failed.\n{error}") from None
    except exceptions.RayError as error:
        raise FedSeqError(f"the Ray cluster failed: {error}. Continue the run when it is back.") from None
    return unpack(pickled, [lasting_copy(array) for array in arrays])


def _has_reply(asked: _Asked[Request], waiting: deque[_Asked[Request]]) -> bool:
    if isinstance(asked.reply, Exception):
        raise asked.reply
    if asked.reply is not None:
        return True
    asked.deaths += 1
    if asked.deaths == DEATHS_PER_REQUEST:
        raise FedSeqError(hopeless(asked.request))
    waiting.appendleft(asked)
    return False
