"""Jobs as tasks of a Ray cluster. Which machine computes what, and how often it has to, does not change a bit of it.

Everything that a job depends on comes from the driver: the data once per run, each distinct tensor of a round once,
both through Ray's object store, and clients' memory with their jobs. So no machine but the driver's and the cluster's
head keeps anything that could be lost: a worker process has the data and a model at hand, and if it dies, or the
machine below it, its job is asked anew elsewhere.
"""

import contextlib
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import cloudpickle, exceptions
from torch import Tensor

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.engines.dispatcher import (
    Batches,
    Dispatcher,
    Reply,
    Request,
    WorkerError,
    answer,
    caught,
    keep_freed_memory,
)
from fedseq.engines.ray_cluster import connected
from fedseq.engines.transfer import TensorsApart, as_array, lasting_copy, pack, unpack
from fedseq.training.jobs import Task
from fedseq.training.sgd import build, lay_out, one_thread
from fedseq.training.weights import FlatModel

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


# --- the far side: what workers are sent for a run, and how they answer ---
# A worker process keeps the data and a model of the engine that asked last; all else comes with the request.

Shipment = tuple[list[str], dict[str, str], bytes, list[np.ndarray]]
_ready: dict[str, tuple[Task, FlatModel]] = {}  # of one engine: its data and model, made when its first job comes


class _Pickler(TensorsApart, cloudpickle.Pickler):
    """Functions and classes that another machine cannot import, such as those of a notebook, travel in the bytes."""


def ship(task: Task) -> Shipment:
    """The task laid out as workers read it, all clients' indices in one array, and where to find the user's modules."""
    with one_thread():
        prepared = lay_out(task, build(task))
    indices = np.concatenate([np.zeros(0, np.int64), *task.clients]).astype(np.int64)
    ends = torch.tensor(np.cumsum([len(client) for client in task.clients], dtype=np.int64))
    pickled, tensors = pack_for_ray((replace(prepared, clients=()), torch.from_numpy(indices), ends))
    paths = [path or str(Path.cwd()) for path in sys.path]
    return paths, _versions(), pickled, [as_array(tensor) for tensor in tensors]


def pack_for_ray(thing: Any) -> tuple[bytes, list[Tensor]]:
    try:
        return pack(thing, _Pickler)
    except FedSeqError:
        raise
    except Exception as error:  # noqa: BLE001 - a thing of the user's may refuse in any way
        raise FedSeqError(
            f"the model, the loss or the algorithm cannot be sent to Ray's workers: {error}. Make it of functions and "
            "classes that are defined at the top of a module, or use --engine processes."
        ) from None


def _versions() -> dict[str, str]:
    return {"fedseq": __version__, "torch": torch.__version__, "numpy": np.__version__}


@ray.remote(num_cpus=1, max_retries=0)  # the engine retries, and counts
def work(key: str, shipment: Shipment, pickled: bytes, *arrays: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
    def reply() -> Reply:
        try:
            if key not in _ready:
                _ready.clear()
                _ready[key] = _unload(shipment)
            # Copied: an algorithm may write to its own message and memory, and the store's pages are read-only.
            request = unpack(pickled, [array.copy() for array in arrays])
        except ImportError as error:
            raise FedSeqError(
                f"a Ray worker cannot load the model, the loss or the algorithm: {error}. Every node needs it."
            ) from None
        return answer(*_ready[key], request)

    pickled_reply, tensors = pack(caught(reply), _Pickler)
    return pickled_reply, [as_array(tensor) for tensor in tensors]


def _unload(shipment: Shipment) -> tuple[Task, FlatModel]:
    paths, versions, pickled, arrays = shipment
    if _versions() != versions:
        raise FedSeqError(f"a Ray node has {_versions()}, and the driver {versions}. Install the same on every node.")
    sys.path.extend(path for path in paths if path not in sys.path)
    torch.set_num_threads(1)
    keep_freed_memory()
    task, indices, ends = unpack(pickled, arrays)
    task = replace(task, clients=np.split(indices.numpy(), ends.numpy()[:-1]))
    model = build(task)
    return lay_out(task, model), model  # the data is laid out already, which costs nothing here
