"""The far side of the Ray engine: what its workers are sent for a run, and how they answer a request.

A worker process keeps the data and a model of the engine that asked last; all else comes with the request.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import cloudpickle
from torch import Tensor

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.engines.transfer import TensorsApart, as_array, pack, unpack
from fedseq.engines.worker import Reply, answer, caught, keep_freed_memory
from fedseq.training.jobs import Task
from fedseq.training.sgd import build, lay_out, one_thread
from fedseq.training.weights import FlatModel

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
