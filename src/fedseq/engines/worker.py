"""A worker process: answers one request after another until it is killed. It keeps nothing between them."""

import ctypes
import gc
import os
import signal
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from fedseq.chains import run_job
from fedseq.engines.mailbox import Mailbox
from fedseq.errors import FedSeqError
from fedseq.evaluation import BatchSums, evaluate_batches
from fedseq.jobs import Job, Result, Task
from fedseq.training import build
from fedseq.weights import FlatModel


@dataclass(frozen=True)
class Batches:
    """Evaluate these batches of the test set."""

    weights: Tensor
    numbers: range


Reply = Result | list[BatchSums] | Exception


class WorkerError(RuntimeError):
    """Something went wrong in a worker; the text holds its traceback."""


def serve(task: Task, inbox: Mailbox, outbox: Mailbox, connection: Connection, parent: int) -> None:
    _become_worker(parent)
    model = build(task)
    while True:
        request = inbox.read(connection.recv_bytes(), copy=False)
        connection.send_bytes(outbox.write(answer(task, model, request)))


def answer(task: Task, model: FlatModel, request: Job | Batches) -> Reply:
    try:
        if isinstance(request, Batches):
            return evaluate_batches(task, model, request.weights, request.numbers)
        result = run_job(task, model, request)
        return replace(result, start=result.start[:0])  # the parent knows what the job started from
    except FedSeqError as error:
        return error
    except Exception:  # noqa: BLE001 - whatever it is, it is raised in the parent
        return WorkerError(f"a worker process failed; --engine serial fails in place.\n{traceback.format_exc()}")


def _become_worker(parent: int) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(parent)
    keep_freed_memory()
    gc.freeze()  # what was there before need not be looked at, and copied for it, by the collector


def _die_with(parent: int) -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it was asked to tell
        os._exit(1)


def keep_freed_memory() -> None:
    """By default glibc gives large temporaries back to the system, which then faults in fresh pages for every batch."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # other C libraries do without
        for option, value in ((mmap_threshold, 1 << 30), (trim_threshold, 1 << 30), (top_pad, 1 << 26)):
            library.mallopt(option, value)
