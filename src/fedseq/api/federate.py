"""Bring your own: any model, any clients, any algorithm, any loss."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedseq import algorithms
from fedseq.algorithms.base import Algorithm
from fedseq.api.experiment import execute
from fedseq.api.own_examples import LabelledData, as_pair
from fedseq.basics.errors import FedSeqError, in_short
from fedseq.basics.identity import function_name
from fedseq.models import own_factory
from fedseq.options.config import Config
from fedseq.options.datasets import OWN
from fedseq.options.grammar import CENTRALIZED, parse_algorithm
from fedseq.options.resolve import resolve, resolve_with_object
from fedseq.policies import Policy
from fedseq.rounds.loop import Unit
from fedseq.rounds.prepare import data_digest, looked_at, prepare, split_test
from fedseq.runs.notebook import default_reporter
from fedseq.runs.reading import Run
from fedseq.training.evaluation import predict
from fedseq.training.examples import Examples
from fedseq.training.jobs import Task, make_task
from fedseq.training.reporter import Reporter
from fedseq.training.weights import FlatModel


def federate(
    model: Callable[..., nn.Module],
    clients: Sequence[LabelledData],
    test: LabelledData,
    algorithm: str | Algorithm = "fedseq",
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    groups: Sequence[Sequence[int]] | None = None,
    test_clients: Sequence[Any] | None = None,
    policies: Sequence[Policy] = (),
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Run:
    """Train your own model on your own clients: a factory, examples per client, a test set and an algorithm.

    Examples are an (x, y) pair of tensors, a torch Dataset of such pairs, or a Hugging Face dataset with a column of
    labels. The factory, such as the class, is called with (shape, num_classes), (num_classes) or nothing, as it asks.
    Options are those of the command line (rounds, lr, fraction, ...). Giving the same folder again continues the run.
    With `test_clients`, whose each test example is, `eval_clients` tells how the model does for each client.
    """
    pairs = [as_pair(client, f"client {number}") for number, client in enumerate(clients)]
    held_out = as_pair(test, "the test set")
    _check_pairs([*pairs, held_out])
    x, y = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    ends = np.cumsum([len(targets) for _, targets in pairs])
    indices = np.split(np.arange(len(y)), ends[:-1])
    return federate_indexed(
        model, (x, y), indices, held_out, algorithm,
        loss=loss, groups=groups, test_clients=test_clients, policies=policies, folder=folder, reporter=reporter,
        **options,
    )  # fmt: skip


def federate_indexed(
    model: Callable[..., nn.Module],
    train: LabelledData,
    clients: Sequence[np.ndarray],
    test: LabelledData,
    algorithm: str | Algorithm = "fedseq",
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    groups: Sequence[Sequence[int]] | None = None,
    test_clients: Sequence[Any] | None = None,
    names: Sequence[str] = (),
    policies: Sequence[Policy] = (),
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Run:
    """As `federate`, for clients that are index arrays into one training set; they may share examples."""
    if isinstance(model, nn.Module) or not callable(model):
        raise FedSeqError("model must be a function that builds a module, such as the class itself, not a module.")
    if not isinstance(algorithm, str | Algorithm):
        raise FedSeqError(f"algorithm must be a name or an Algorithm, not {algorithm!r}.")
    (x, y), (x_test, y_test) = as_pair(train, "the training set"), as_pair(test, "the test set")
    _check_indices(clients, len(y))
    num_classes = 0 if y.is_floating_point() else int(torch.cat([y, y_test]).max()) + 1
    config = _resolve_own(algorithm, len(clients), bool(num_classes), groups is not None, options)
    if config.algorithm == CENTRALIZED:
        clients = [np.concatenate(clients)]
    built = algorithms.build(config) if isinstance(algorithm, str) else algorithm
    tested = Examples(x_test, y_test, owner=_owner(test_clients, len(y_test), config))
    classes = tuple(map(str, range(num_classes)))
    exemplars, held_out = split_test(config, tested, classes)
    factory = own_factory(model, function_name(model), tuple(x.shape[1:]), num_classes)
    task = make_task(config, factory, Examples(x, y), clients, held_out, num_classes, loss)
    _warn_of_unseen(task)
    if groups is not None and not built.superclients:
        raise FedSeqError(f"groups are for algorithms with superclients, such as fedseq, and not for {built.name}.")
    chosen = _checked_groups(groups, clients) if groups is not None else None
    digest = data_digest(
        (x.numpy(force=True), y.numpy(force=True)), (x_test.numpy(force=True), y_test.numpy(force=True))
    )
    parts = prepare(
        config, task, built, exemplars, check=_check_model, policies=policies, groups=chosen, names=tuple(names),
        class_names=classes, dataset_digest=digest,
    )  # fmt: skip
    return execute(parts, folder, reporter or default_reporter())


def _check_indices(clients: Sequence[np.ndarray], examples: int) -> None:
    for number, indices in enumerate(clients):
        if len(indices) and not 0 <= np.min(indices) <= np.max(indices) < examples:
            raise FedSeqError(f"client {number} names an example that is not there: they are 0 to {examples - 1}.")
    if not any(len(indices) for indices in clients):
        raise FedSeqError("no client holds an example. Give some of them indices into the training set.")


def _owner(test_clients: Sequence[Any] | None, examples: int, config: Config) -> Tensor | None:
    if not config.eval_clients:
        return None
    if test_clients is None or len(test_clients) != examples:
        raise FedSeqError("eval_clients needs test_clients: whose each test example is, one for each.")
    return looked_at(np.unique(np.asarray(test_clients), return_inverse=True)[1], config)


def _resolve_own(
    algorithm: str | Algorithm, num_clients: int, classes: bool, grouped: bool, options: Mapping[str, Any]
) -> Config:
    """The config of a run whose data and model, and perhaps algorithm and groups, are given as objects."""
    superclients = parse_algorithm(algorithm).superclients if isinstance(algorithm, str) else algorithm.superclients
    forming = [name for name in ("grouping", "min_samples", "max_clients") if name in options]
    if grouped and forming:
        raise FedSeqError(f"groups are given, so that {forming[0]} has no effect. Leave one of them out.")
    if "num_clients" in options:
        raise FedSeqError(f"{num_clients} clients are given, so that num_clients has no effect. Leave it out.")
    if "target_accuracy" in options and not classes:
        raise FedSeqError("target_accuracy is for classes, and the targets are numbers. Leave it out, or use patience.")
    own = {"dataset": OWN, "model": OWN, "rounds": 100}
    own |= {"grouping": "random"} if superclients and (grouped or not classes) else {}
    own |= {} if algorithm == CENTRALIZED else {"num_clients": num_clients}
    if isinstance(algorithm, str):
        return resolve({**own, **options, "algorithm": algorithm})
    if algorithm.name == CENTRALIZED:
        raise FedSeqError("give algorithm='centralized' by its name: its momentum and learning rate go with that.")
    shape = "fedavg" if not superclients else "fedseq" if algorithm.merge_every == 1 else "fedseqinter"
    return resolve_with_object({**own, **options}, algorithm.name, shape)


def _check_pairs(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Every client and the test set: examples, as many inputs as targets, and all of one kind and shape."""
    if len(pairs) == 1:
        raise FedSeqError("there are no clients. Give a list with an (x, y) pair for each.")
    first_x, first_y = pairs[0]
    for number, (x, y) in enumerate(pairs):
        who = "the test set" if number == len(pairs) - 1 else f"client {number}"
        if len(x) != len(y):
            raise FedSeqError(f"{who} has {len(x)} inputs and {len(y)} targets.")
        if not len(y):
            raise FedSeqError(f"{who} has no examples. {'Give some.' if who == 'the test set' else 'Leave it out.'}")
        for what, own, first in (("inputs", x, first_x), ("targets", y, first_y)):
            if own.shape[1:] != first.shape[1:]:
                shapes = f"{list(own.shape[1:])}, and those of client 0 {list(first.shape[1:])}"
                raise FedSeqError(f"{what} of {who} have the shape {shapes}. Give all of one shape.")
    kinds = {y.is_floating_point() for _, y in pairs}
    if len(kinds) > 1:
        raise FedSeqError("some targets are classes (integers) and some are numbers (floats). Give all of one kind.")


@torch.no_grad()
def _check_model(task: Task, model: FlatModel) -> None:
    """Some examples through the model and the loss, so that what does not fit is told here, not by a worker: two, and
    one of the largest class, for which the model may have no output.
    """
    for whose, examples in (("a client's", task.train), ("the test set's", task.test)):
        if not len(examples.y):
            continue
        if not examples.y.is_floating_point() and int(examples.y.min()) < 0:
            raise FedSeqError(f"class {int(examples.y.min())} is negative. Classes are numbered from 0.")
        try:
            largest = int(examples.y.reshape(len(examples.y), -1).amax(1).argmax())
            chosen = [0, min(1, len(examples.y) - 1), largest]
            some = replace(examples, x=examples.x[chosen], y=examples.y[chosen], owner=None)
            losses = [task.loss(outputs, some.y[part]) for outputs, part in predict(model, model.vector.clone(), some)]
        except Exception as error:  # whatever a user's code may raise
            raise FedSeqError(f"the model or the loss cannot take {whose} examples: {in_short(error)}") from error
        if any(loss.numel() != 1 for loss in losses):
            raise FedSeqError("the loss gives several numbers for a batch. Let it give their mean.")


def _warn_of_unseen(task: Task) -> None:
    """What the command line refuses in a user's files may be meant here."""
    if not task.num_classes:
        return
    held = task.train.y[
        torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *task.clients])).to(task.train.y.device)
    ]
    unseen = sorted(set(task.test.y.unique().tolist()) - set(held.unique().tolist()))
    if unseen:
        more = f" and {len(unseen) - 1} more" if unseen[1:] else ""
        warnings.warn(
            f"no client holds class {unseen[0]}{more}, which the test set has: nobody learns it.", stacklevel=4
        )


def _checked_groups(groups: Sequence[Sequence[int]], clients: Sequence[np.ndarray]) -> list[Unit]:
    """A user's superclients: each client that holds examples once; those without are left out, as everywhere."""
    named = Counter(int(client) for group in groups for client in group)
    strangers = [client for client in named if not 0 <= client < len(clients)]
    twice = [client for client, times in named.items() if times > 1]
    if strangers:
        raise FedSeqError(f"groups name client {strangers[0]}, and there are clients 0 to {len(clients) - 1}.")
    if twice:
        raise FedSeqError(f"groups name client {twice[0]} more than once. Every client belongs to one superclient.")
    left_out = [client for client, indices in enumerate(clients) if len(indices) and client not in named]
    if left_out:
        raise FedSeqError(
            f"groups leave out client {left_out[0]}{f' and {len(left_out) - 1} more' if left_out[1:] else ''}, which "
            "would count as a client and never be trained. Name every client in a group, or give only those clients."
        )
    held = [tuple(int(client) for client in group if len(clients[client])) for group in groups]
    return [group for group in held if group]
