"""Bring your own: any model, any clients, any algorithm, any loss."""

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedseq import algorithms
from fedseq.algorithms.base import Algorithm, checked
from fedseq.api.experiment import execute
from fedseq.api.own_data import Clients, LabelledData, plain_number, read_own_data
from fedseq.basics.errors import FedSeqError, in_short
from fedseq.basics.identity import function_name
from fedseq.data.columns import column_values
from fedseq.data.real_clients import EXAMPLES
from fedseq.models import own_factory
from fedseq.options.config import Config
from fedseq.options.config_files import coerce
from fedseq.options.datasets import OWN
from fedseq.options.grammar import CENTRALIZED, parse_algorithm
from fedseq.options.resolve import resolve, resolve_with_object
from fedseq.policies import Policy
from fedseq.rounds.loop import Unit
from fedseq.rounds.prepare import data_digest, looked_at, prepare, split_test
from fedseq.runs.notebook import default_reporter
from fedseq.runs.reading import Run
from fedseq.training.examples import Examples, model_input
from fedseq.training.jobs import Task, make_task
from fedseq.training.reporter import Reporter
from fedseq.training.weights import FlatModel

_MOST_CLASSES = 100_000  # where there are fewer examples; each class has a name, and an output of the model


def federate(
    model: Callable[..., nn.Module],
    clients: Clients,
    test: LabelledData | None = None,
    algorithm: str | Algorithm = "fedseq",
    *,
    data: LabelledData | None = None,
    label_column: str | None = None,
    holdout: float | None = None,
    holdout_by: str = EXAMPLES,
    test_clients: Sequence[Any] | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    groups: Sequence[Sequence[int]] | None = None,
    policies: Sequence[Policy] = (),
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Run:
    """Train your own model on your own clients: a factory, examples per client, a test set and an algorithm.

    Examples are an (x, y) pair of tensors, a torch Dataset of such pairs, or a Hugging Face dataset with a column of
    labels. `clients` is a list of them, one for each client. Or all examples are in one set, given as `data`, and
    `clients` says whose they are: index arrays, which may share examples; the name of a column of a Hugging Face
    dataset; or a function of an example's number, or a list. With the last three, a share is held out for the test
    where no test set is given: of each client's examples, whole clients, or whole values of a column.

    The factory, such as the class, is called with (shape, num_classes), (num_classes) or nothing, as it asks. Options
    are those of the command line (rounds, lr, fraction, ...). Giving the same folder again continues the run. With
    `test_clients`, whose each test example is, `eval_clients` tells how the model does for each client.
    """
    groups = list(groups) if isinstance(groups, Iterable) else groups  # of which a generator would give once
    _check_arguments(model, algorithm, loss, folder, reporter, options)
    seed = coerce("seed", options.get("seed", 0)) or 0
    if seed < 0:
        raise FedSeqError(f"--seed must be 0 or more, not {seed}.")
    share = None if holdout is None else coerce("holdout", holdout)
    own = read_own_data(clients, test, data, label_column, share, holdout_by, seed)
    (x, y), (x_test, y_test), indices = own.train, own.test, own.clients
    if y.is_floating_point() != y_test.is_floating_point():
        raise FedSeqError("some targets are classes (integers) and some are numbers (floats). Give all of one kind.")
    num_classes = 0 if y.is_floating_point() else int(torch.cat([y, y_test]).max()) + 1
    if num_classes > max(_MOST_CLASSES, len(y)):
        raise FedSeqError(f"class {num_classes - 1} among {len(y)} examples. Number the classes from 0.")
    chosen = _checked_groups(groups, indices) if groups is not None else None
    config = _resolve_own(algorithm, len(indices), bool(num_classes), groups is not None, options)
    if config.augment == "crop-flip" and x.dim() != 4:
        raise FedSeqError(f"augment='crop-flip' needs pictures, and inputs have the shape {list(x.shape[1:])}.")
    names = own.names
    if config.algorithm == CENTRALIZED:
        indices, names = [np.concatenate(indices)], ()
    built = algorithms.build(config) if isinstance(algorithm, str) else checked(algorithm)
    if chosen is not None and not built.superclients:
        raise FedSeqError(f"groups are for algorithms with superclients, such as fedseq, and not for {built.name}.")
    whose = own.tested if test_clients is None else _checked_owners(test_clients, len(y_test), config)
    tested = Examples(x_test, y_test, owner=_looked_at(whose, config))
    classes = tuple(map(str, range(num_classes)))
    exemplars, held_out = split_test(config, tested, classes)
    factory = own_factory(model, function_name(model), tuple(x.shape[1:]), num_classes)
    task = make_task(config, factory, Examples(x, y), indices, held_out, num_classes, loss)
    _warn_of_unseen(task)
    digest = data_digest(
        (x.numpy(force=True), y.numpy(force=True)), (x_test.numpy(force=True), y_test.numpy(force=True))
    )
    parts = prepare(
        config, task, built, exemplars, check=_check_model_and_loss, policies=policies, groups=chosen, names=names,
        class_names=classes, dataset_digest=digest,
    )  # fmt: skip
    return execute(parts, folder, reporter or default_reporter())


def _check_arguments(
    model: Any, algorithm: Any, loss: Any, folder: Any, reporter: Any, options: Mapping[str, Any]
) -> None:
    if isinstance(model, nn.Module) or not callable(model):
        raise FedSeqError("model must be a function that builds a module, such as the class itself, not a module.")
    if not isinstance(algorithm, str | Algorithm):
        raise FedSeqError(f"algorithm must be a name or an Algorithm, not {algorithm!r}.")
    if not callable(loss) or isinstance(loss, type):
        raise FedSeqError(
            f"loss must be a function of outputs and targets, such as nn.CrossEntropyLoss(), not {in_words(loss)}."
        )
    if not isinstance(folder, str | Path | None) or "\0" in str(folder):
        raise FedSeqError(f"folder must be a path, not {folder!r:.60}.")
    if reporter is not None and not all(callable(getattr(reporter, name, None)) for name in ("begin", "round", "note")):
        raise FedSeqError(
            f"reporter must have the methods of fedseq.training.reporter.Reporter; it is {in_words(reporter)}."
        )
    for name in ("dataset", "data_dir", "clients_by", "num_clients"):
        if name in options:
            raise FedSeqError(f"examples and clients are given, so that {name} has no effect. Leave it out.")


def in_words(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _checked_owners(test_clients: Any, examples: int, config: Config) -> np.ndarray:
    if not config.eval_clients:
        raise FedSeqError(
            "test_clients has no effect without eval_clients, the number of clients to evaluate one by one."
        )
    if isinstance(test_clients, str | Set | Mapping) or not isinstance(test_clients, Iterable):
        raise FedSeqError(f"test_clients is {in_words(test_clients)}: give a list with whose each test example is.")
    whose = column_values("test_clients", "client", [plain_number(one) for one in test_clients])
    if len(whose) != examples:
        raise FedSeqError(f"test_clients has {len(whose)} entries for {examples} test examples.")
    found: np.ndarray = np.unique(whose, return_inverse=True)[1]
    return found


def _looked_at(whose: np.ndarray | None, config: Config) -> Tensor | None:
    if not config.eval_clients:
        return None
    if whose is None:
        raise FedSeqError("eval_clients needs test_clients: whose each test example is, one for each.")
    return looked_at(whose, config)


def _resolve_own(
    algorithm: str | Algorithm, num_clients: int, classes: bool, grouped: bool, options: Mapping[str, Any]
) -> Config:
    """The config of a run whose data and model, and perhaps algorithm and groups, are given as objects."""
    superclients = parse_algorithm(algorithm).superclients if isinstance(algorithm, str) else algorithm.superclients
    forming = [name for name in ("grouping", "min_samples", "max_clients") if name in options]
    if grouped and forming:
        raise FedSeqError(f"groups are given, so that {forming[0]} has no effect. Leave one of them out.")
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


def _check_model_and_loss(task: Task, model: FlatModel) -> None:
    """Some examples through the model and the loss, so that what does not fit is told here, not by a worker: three, and
    one of the largest class, for which the model may have no output.
    """
    for whose, examples in (("a client's", task.train), ("the test set's", task.test)):
        if not len(examples.y):
            continue
        largest = int(examples.y.reshape(len(examples.y), -1).amax(1).argmax())
        chosen = [0, min(1, len(examples.y) - 1), largest]
        x, y = model_input(examples.x[chosen], examples, model.channels_last), examples.y[chosen]
        try:
            with warnings.catch_warnings(), torch.enable_grad():
                warnings.filterwarnings("error", message="Using a target size")
                model.module.eval()
                outputs = model.outputs(x)
                _check_outputs(outputs, len(chosen))
                found = task.loss(outputs, y)
        except FedSeqError:
            raise
        except UserWarning:
            hint = " Classes need a loss for classes, such as cross_entropy." if task.num_classes else ""
            raise FedSeqError(
                f"the loss compares outputs of shape {list(outputs.shape)} with targets of shape {list(y.shape)}, "
                f"which mixes up the examples. Give both the same shape.{hint}"
            ) from None
        except Exception as error:  # whatever a user's code may raise
            raise FedSeqError(f"the model or the loss cannot take {whose} examples: {in_short(error)}") from error
        _check_loss(found, outputs)


def _check_outputs(outputs: Any, count: int) -> None:
    if not isinstance(outputs, Tensor):
        raise FedSeqError(
            f"the model gives a {type(outputs).__name__}, not a tensor. Let `forward` return the outputs."
        )
    if outputs.dim() == 0 or len(outputs) != count:
        raise FedSeqError(
            f"the model gives outputs of shape {list(outputs.shape)} for {count} examples: a row for each."
        )
    if not outputs.requires_grad:
        raise FedSeqError(
            "the model's outputs do not depend on its parameters by a gradient, so that nothing would be learnt: look "
            "for detach(), no_grad() or argmax in `forward`."
        )


def _check_loss(loss: Any, outputs: Tensor) -> None:
    if not isinstance(loss, Tensor) or loss.is_complex():
        kind = str(loss.dtype) if isinstance(loss, Tensor) else type(loss).__name__
        raise FedSeqError(f"the loss gives a {kind}, not a tensor with one real number.")
    if loss.numel() != 1:
        raise FedSeqError("the loss gives several numbers for a batch. Let it give their mean.")
    gradient = torch.autograd.grad(loss.sum(), outputs, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None:
        raise FedSeqError(
            "the loss does not depend on the model's outputs by a gradient, so that nothing would be learnt: look for "
            "detach(), item() or argmax in it."
        )


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


def _checked_groups(groups: Any, clients: Sequence[np.ndarray]) -> list[Unit]:
    """A user's superclients: each client that holds examples once; those without are left out, as everywhere."""
    try:
        if any(isinstance(group, Set) or any(isinstance(client, bool) for client in group) for group in groups):
            raise TypeError  # a set has no order, in which the clients of a superclient could train
        members = [[operator.index(client) for client in group] for group in groups]
    except TypeError:
        raise FedSeqError("groups must be a list of lists of clients' numbers, such as [[0, 1], [2, 3]].") from None
    named = Counter(client for group in members for client in group)
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
    held = [tuple(client for client in group if len(clients[client])) for group in members]
    return [group for group in held if group]
