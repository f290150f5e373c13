"""A worker process: answers one request after another until it is killed. It keeps nothing between them."""

import ctypes
import gc
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

import torch
from torch import Tensor

from fedseq.basics.errors import FedSeqError, is_out_of_memory
from fedseq.basics.processes import end_with_parent
from fedseq.engines.transfer import Mailbox
from fedseq.training.chains import run_job
from fedseq.training.evaluation import BatchSums, evaluate_batches
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build
from fedseq.training.weights import FlatModel

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


def serve(task: Task, device: str, inbox: Mailbox, outbox: Mailbox, connection: Connection, parent: int) -> None:
    """A device other than the task's is begun here: CUDA does not survive a fork, but may be begun after it."""
    _become_worker(parent)
    made: list[tuple[Task, FlatModel]] = []

    def reply(where: bytes) -> bytes:
        if not made:
            own = task if device == task.device else task.on(device)
            made.append((own, build(own)))
        return outbox.write(answer(*made[0], inbox.read(where, copy=False, device=device)))

    while True:
        written = caught(partial(reply, connection.recv_bytes()))
        connection.send_bytes(written if isinstance(written, bytes) else outbox.write(written))


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


def _become_worker(parent: int) -> None:
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGHUP):  # which are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not end_with_parent(parent, signal.SIGKILL):
        os._exit(1)
    keep_freed_memory()
    gc.freeze()  # the collector would write to the parent's objects, and so copy their pages


def keep_freed_memory() -> None:
    """By default glibc gives large temporaries back to the system, which then faults in fresh pages for every batch."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # other C libraries do without
        for option, value in ((mmap_threshold, 1 << 30), (trim_threshold, 1 << 30), (top_pad, 1 << 26)):
            library.mallopt(option, value)
