"""Jobs as tasks of a Ray cluster. Which machine computes what, and how often it has to, does not change a bit of it.

Everything that a job depends on comes from the driver: the data once per run, each distinct tensor of a round once,
both through Ray's object store, and clients' memory with their jobs. So no machine but the driver's and the cluster's
head keeps anything that could be lost: a worker process has the data and a model at hand, and if it dies, or the
machine below it, its job is asked anew elsewhere.
"""

import contextlib
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
import torch
from ray import exceptions
from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.engines.dispatcher import Dispatcher
from fedseq.engines.ray_cluster import connected
from fedseq.engines.ray_worker import pack_for_ray, ship, work
from fedseq.engines.transfer import as_array, lasting_copy, unpack
from fedseq.engines.worker import Batches, Reply, Request, WorkerError
from fedseq.training.jobs import Task

# A worker, its machine, or the only copy of a result is gone: the same job gives the same result elsewhere.
DEATHS = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
)


_Reference = ray.ObjectRef[Any]


class RayEngine(Dispatcher[_Reference]):
    def __init__(self, task: Task, address: str | None = None, workers: int | None = None):
        if torch.device(task.device).type != "cpu":
            raise FedSeqError(f"--engine ray computes on CPUs, not on {task.device}. Use --engine serial there.")
        super().__init__(task)
        self.workers = workers
        self.contact = contextlib.ExitStack()
        self.contact.enter_context(connected(address, workers))
        try:
            self.key = uuid.uuid4().hex
            self.shipment: _Reference | None = ray.put(ship(task))
        except BaseException:  # also Ctrl-C: a cluster that was started must not be left behind
            self.close()
            raise

    def room(self) -> int:
        """A second request waits for each core, unless fewer cores are to be used. Machines come and go."""
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise FedSeqError(
                "the Ray cluster has no CPU to compute on. Add a node with `ray start --address=HOST:PORT`."
            )
        return self.workers if self.workers and self.workers < cores else 2 * cores

    def shelf(self, requests: Sequence[Request]) -> "_Shelf":
        return _Shelf(requests)

    def send(self, request: Request, shelf: "_Shelf") -> _Reference:
        # Packed only now: clients' memory may lie in files, and need not be read all at once.
        pickled, tensors = pack_for_ray(request)
        reference: _Reference = work.remote(self.key, self.shipment, pickled, *map(shelf.reference, tensors))
        return reference

    def wait(self, handles: Sequence[_Reference]) -> list[tuple[_Reference, Reply | None]]:
        ready, _ = ray.wait(list(handles), num_returns=1, timeout=1)
        return [(reference, _receive(reference)) for reference in ready]

    def cancel(self, handle: _Reference) -> None:
        ray.cancel(handle)

    def close(self) -> None:
        self.shipment = None
        super().close()
        self.contact.close()


class _Shelf:
    """What several requests share (the model they start from, the server's message) is stored once for all of them.

    What belongs to one request alone leaves the store with it.
    """

    def __init__(self, requests: Sequence[Request]):
        uses = Counter(
            id(tensor)
            for request in requests
            for tensor in (
                [request.weights] if isinstance(request, Batches) else [request.start, *request.message.values()]
            )
        )
        self.stored: dict[int, _Reference | None] = {key: None for key, count in uses.items() if count > 1}

    def reference(self, tensor: Tensor) -> _Reference:
        stored = self.stored.get(id(tensor)) or ray.put(as_array(tensor))
        if id(tensor) in self.stored:
            self.stored[id(tensor)] = stored
        return stored


def _receive(reference: _Reference) -> Reply | None:
    """None if a worker died of it."""
    try:
        pickled, arrays = ray.get(reference)
    except DEATHS:
        return None
    except exceptions.RayTaskError as error:
        return WorkerError(f"a Ray worker failed.\n{error}")
    except exceptions.RayError as error:
        return FedSeqError(f"the Ray cluster failed: {error}. Continue the run when it is back.")
    reply: Reply = unpack(pickled, map(lasting_copy, arrays))
    return reply
