"""Bring your own: any model, any clients, any algorithm, any loss."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedseq import algorithms
from fedseq.algorithms.base import Algorithm
from fedseq.config import resolve
from fedseq.configfile import from_mapping
from fedseq.errors import FedSeqError
from fedseq.evaluation import predict
from fedseq.examples import Examples
from fedseq.experiment import execute, run_folder
from fedseq.jobs import Task, make_task
from fedseq.parts import Parts, split_exemplars
from fedseq.planning import Unit
from fedseq.progress import QUIET, Reporter
from fedseq.results import Run
from fedseq.training import build


def federate(
    model: Callable[[], nn.Module],
    clients: Sequence[tuple[Tensor, Tensor]],
    test: tuple[Tensor, Tensor],
    algorithm: str | Algorithm = "fedseq",
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    groups: Sequence[Sequence[int]] | None = None,
    folder: str | Path | None = None,
    reporter: Reporter = QUIET,
    **options: Any,
) -> Run:
    """Train your own model on your own clients: a factory, an (x, y) pair per client, a test set and an algorithm.

    Options are those of the command line (rounds, lr, fraction, ...). Giving the same folder again continues the run.
    """
    _check_pairs([*clients, test])
    x, y = (torch.cat([torch.as_tensor(client[i]) for client in clients]) for i in (0, 1))
    ends = np.cumsum([len(client[1]) for client in clients])
    indices = np.split(np.arange(len(y)), ends[:-1])
    return federate_indexed(
        model, (x, y), indices, test, algorithm,
        loss=loss, groups=groups, folder=folder, reporter=reporter, **options,
    )  # fmt: skip


def federate_indexed(
    model: Callable[[], nn.Module],
    train: tuple[Tensor, Tensor],
    clients: Sequence[np.ndarray],
    test: tuple[Tensor, Tensor],
    algorithm: str | Algorithm = "fedseq",
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    groups: Sequence[Sequence[int]] | None = None,
    folder: str | Path | None = None,
    reporter: Reporter = QUIET,
    **options: Any,
) -> Run:
    """As `federate`, for clients that are index arrays into one training set; they may share examples."""
    if isinstance(model, nn.Module) or not callable(model):
        raise FedSeqError("model must be a function that builds a module, such as the class itself, not a module.")
    if not isinstance(algorithm, str | Algorithm):
        raise FedSeqError(f"algorithm must be a name or an Algorithm, not {algorithm!r}.")
    name = algorithm if isinstance(algorithm, str) else "fedseq" if algorithm.superclients else "fedavg"
    (x, y), (x_test, y_test) = train, (torch.as_tensor(test[0]), torch.as_tensor(test[1]))
    num_classes = 0 if y.is_floating_point() else int(torch.cat([y, y_test]).max()) + 1
    own = {"lr": 0.05, "rounds": 100, "model": "own", **({} if num_classes else {"method": "random"}), **options}
    config = replace(
        resolve(from_mapping({**own, "algorithm": name, "num_clients": len(clients)})), dataset="own", partition=None
    )
    if name == "centralized":
        clients = [np.concatenate(clients)]
    built = algorithms.build(config) if isinstance(algorithm, str) else algorithm
    config = replace(config, algorithm=built.name)
    exemplars, held_out = split_exemplars(Examples(x_test, y_test), config.exemplars if num_classes else 0)
    task = make_task(config, model, Examples(x, y), clients, held_out, num_classes, loss)
    _check_model(task)
    chosen = _checked_groups(groups, clients) if groups is not None and built.superclients else None
    return execute(Parts(config, task, built, exemplars, chosen), run_folder(folder, config), reporter)


def _check_pairs(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Every client and the test set: as many inputs as targets, and targets of one kind."""
    if len(pairs) == 1:
        raise FedSeqError("there are no clients. Give a list with an (x, y) pair for each.")
    for number, (x, y) in enumerate(pairs):
        who = "the test set" if number == len(pairs) - 1 else f"client {number}"
        if len(x) != len(y):
            raise FedSeqError(f"{who} has {len(x)} inputs and {len(y)} targets.")
    kinds = {torch.as_tensor(y).is_floating_point() for _, y in pairs}
    if len(kinds) > 1:
        raise FedSeqError("some targets are classes (integers) and some are numbers (floats). Give all of one kind.")


def _check_model(task: Task) -> None:
    """Two examples through the model and the loss, so that what does not fit is told here and not by a worker."""
    if not task.train.y.is_floating_point() and len(task.train.y) and int(task.train.y.min()) < 0:
        raise FedSeqError(f"class {int(task.train.y.min())} is negative. Classes are numbered from 0.")
    model = build(task)
    try:
        for outputs, part in predict(model, model.vector.clone(), first(task.train, 2)):
            task.loss(outputs, task.train.y[part][:2])
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise FedSeqError(f"the model or the loss can't take a client's examples: {error}") from None


def first(examples: Examples, count: int) -> Examples:
    return replace(examples, x=examples.x[:count], y=examples.y[:count])


def _checked_groups(groups: Sequence[Sequence[int]], clients: Sequence[np.ndarray]) -> list[Unit]:
    """A user's superclients: each client at most once; those without examples are left out, as everywhere."""
    named = Counter(int(client) for group in groups for client in group)
    strangers = [client for client in named if not 0 <= client < len(clients)]
    twice = [client for client, times in named.items() if times > 1]
    if strangers:
        raise FedSeqError(f"groups name client {strangers[0]}, and there are clients 0 to {len(clients) - 1}.")
    if twice:
        raise FedSeqError(f"groups name client {twice[0]} more than once. Every client belongs to one superclient.")
    held = [tuple(int(client) for client in group if len(clients[client])) for group in groups]
    if not any(held):
        raise FedSeqError("groups name no client that holds examples.")
    return [group for group in held if group]
