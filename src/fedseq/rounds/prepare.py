"""What a run is made of: the names of a config turned into data, clients, model and algorithm."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedseq import algorithms
from fedseq.algorithms.base import Algorithm
from fedseq.basics import seeds
from fedseq.basics.errors import MANY, FedSeqError, in_short, is_out_of_memory
from fedseq.data import Dataset, load_dataset
from fedseq.data.dataset import Scaling, Wanted
from fedseq.data.partition import partition_clients
from fedseq.data.real_clients import CLIENTS, EXAMPLES, client_indices, settle
from fedseq.models import default_model, kernels, model_factory
from fedseq.options.conditions import CONFIDENCE, EXEMPLARS
from fedseq.options.config import Config
from fedseq.options.datasets import CATALOG
from fedseq.options.tables import MODELS
from fedseq.policies import Policy, with_policies
from fedseq.policies.privacy import check_algorithm
from fedseq.privacy.accountant import with_noise
from fedseq.runs.model_card import ModelCard
from fedseq.training import weights
from fedseq.training.examples import Examples, model_input
from fedseq.training.jobs import Task, build_first, make_task
from fedseq.training.reporter import Reporter
from fedseq.training.sgd import one_thread
from fedseq.training.weights import FlatModel


@dataclass(frozen=True)
class Parts:
    config: Config  # resolved, with kernels that model and machine can
    task: Task
    algorithm: Algorithm
    model: FlatModel  # built once, and used for whatever the server computes
    theta: Tensor  # as it was built
    policies: tuple[Policy, ...] = ()
    exemplars: Examples | None = None
    groups: Sequence[tuple[int, ...]] | None = None  # superclients given by the user
    names: tuple[str, ...] = ()  # of clients that exist, those that are only tested with at the end
    class_names: tuple[str, ...] = ()  # none where the targets are numbers
    scale: Scaling | None = None  # of features
    stored: str = ""  # the type of inputs before they are scaled; empty where they are given as they are used
    dataset_digest: str = ""  # of data without a published name, by which runs on the same are recognised
    test_source: str = ""  # where the test set was read from, if that is no data set: npz:FILE, folder:DIR, ...


def named_parts(config: Config, reporter: Reporter) -> Parts:
    """Turn the names of a resolved config into data, model and algorithm; the training data is dealt to clients."""
    algorithm = algorithms.build(config)
    dataset = read_dataset(config, reporter)
    return assemble(config, dataset, deal(config, dataset), algorithm)


def read_dataset(config: Config, reporter: Reporter) -> Dataset:
    """The data set with its test set, and with the owners of its examples if clients are told apart by a column."""
    columns = [config.clients_by] if config.clients_by else []
    if config.holdout is not None and config.holdout_by not in (CLIENTS, EXAMPLES, config.clients_by):
        columns.append(config.holdout_by)
    data_dir = Path(config.data_dir) if config.data_dir else None
    if data_dir is not None and not data_dir.is_dir():
        raise FedSeqError(f"--data-dir {data_dir} is not a folder. Name the folder that holds the data set's files.")
    dataset = load_dataset(config.dataset, data_dir, reporter.stage, Wanted(tuple(columns), config.label_column))
    rng = seeds.generator(config.seed, "holdout")
    return settle(dataset, config.clients_by, config.holdout, config.holdout_by, rng)


def deal(config: Config, dataset: Dataset) -> list[np.ndarray]:
    """Each client's examples: whose they are, or to whom they are dealt."""
    if dataset.owners is not None:
        return [np.arange(len(dataset.y_train))] if config.centralized else client_indices(dataset.owners)
    rng = seeds.generator(config.seed, "partition")
    return partition_clients(
        dataset.y_train, config.num_clients, config.alpha, rng, config.partition, config.follows_authors("partition")
    )


def assemble(config: Config, dataset: Dataset, clients: Sequence[np.ndarray], algorithm: Algorithm) -> Parts:
    """A data set and its clients with the model that the config names, or that fits the data."""
    model = config.model or default_model(dataset.shape, dataset.is_text)
    if model in MODELS and (MODELS[model].takes == "text") != dataset.is_text:
        raise FedSeqError(
            f"model '{model}' does not fit the data, which is {'' if dataset.is_text else 'not '}text. "
            f"Use --model {default_model(dataset.shape, dataset.is_text)}."
        )
    if config.augment == "crop-flip" and len(dataset.shape) != 3:
        raise FedSeqError(f"--augment crop-flip needs pictures, and the data has shape {dataset.shape}. Use none.")
    config = with_noise(replace(config, model=model), len(clients))
    factory = model_factory(model, dataset.shape, dataset.num_classes)
    exemplars, test = split_test(config, test_of(config, dataset), dataset.class_names)
    train = examples_of(dataset, dataset.x_train, dataset.y_train)
    task = make_task(config, factory, train, clients, test, dataset.num_classes)
    names = dataset.owners.names if dataset.owners and not config.centralized else ()
    classes = dataset.class_names
    digest = "" if config.dataset in CATALOG else _digest_of(dataset)
    return prepare(
        config, task, algorithm, exemplars, check=partial(check_model, f"'{model}'") if ":" in model else None,
        names=names, class_names=classes, scale=dataset.scale, stored=dataset.x_test.dtype.name, dataset_digest=digest,
    )  # fmt: skip


def test_of(config: Config, dataset: Dataset) -> Examples:
    """The whole test set, with the owners of its examples where they are looked at."""
    test = examples_of(dataset, dataset.x_test, dataset.y_test)
    if dataset.owners is None or not config.eval_clients:
        return test
    return replace(test, owner=looked_at(dataset.owners.test, config))


def looked_at(owner: np.ndarray, config: Config) -> Tensor:
    """Whose each test example is; -1 where its client is not among those that are evaluated one by one."""
    if not len(owner):
        raise FedSeqError("--eval-clients needs to know whose each test example is, and the data does not say it.")
    present = np.unique(owner)
    drawn = seeds.generator(config.seed, "evaluate-clients").permutation(present)[: config.eval_clients]
    return torch.from_numpy(np.where(np.isin(owner, drawn), owner, -1))


def check_model(name: str, task: Task, built: FlatModel) -> None:
    """One example through a user's model: what does not fit is told before anything is begun."""
    x = model_input(task.test.x[:1], task.test, built.channels_last)
    given = f"{list(x.shape)} of {str(x.dtype).removeprefix('torch.')}"
    try:
        with torch.no_grad():
            output = built.module.eval()(x)
    except Exception as error:  # whatever a user's code may raise
        if is_out_of_memory(error):
            raise
        raise FedSeqError(f"model {name} cannot take an input of {given}: it raises {in_short(error)}") from error
    found = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if found != [1, task.num_classes]:
        raise FedSeqError(
            f"model {name} gives {found} for an input of {given}; [1, {task.num_classes}] was expected, "
            f"as the data has {task.num_classes} classes."
        )


def prepare(
    config: Config,
    task: Task,
    algorithm: Algorithm,
    exemplars: Examples | None = None,
    *,
    check: Callable[[Task, FlatModel], None] | None = None,
    policies: Sequence[Policy] = (),
    **told: Any,
) -> Parts:
    """Build the model, once, and settle what follows from it: `auto` takes the fast kernels where it can."""
    with one_thread():
        task, model = build_first(config, task)
    theta = model.vector.clone()
    if check is not None:
        check(task, model)
    refuse_what_is_not_private(config, algorithm, model)
    kernel = fitting_kernels(config, task, model)
    kernels.choose(model.module, kernel)
    config = replace(config, kernels=kernel)
    task, found = with_policies(config, replace(task, kernels=kernel), exemplars, policies)
    return Parts(config, task, algorithm, model, theta, found, exemplars, **told)


def fitting_kernels(config: Config, task: Task, model: FlatModel) -> str:
    if config.kernels == "torch":
        return "torch"
    obstacle = kernels.obstacle(model.module, model_input(task.test.x[:1], task.test, model.channels_last))
    if config.device != "cpu":
        obstacle = f"they compute on CPUs, and --device is {config.device}"
    if config.precision != "float32":
        obstacle = f"they compute in float32, and --precision is {config.precision}"
    if obstacle and config.kernels == "fast":
        raise FedSeqError(
            f"--kernels fast cannot be used: {obstacle}. Use --kernels torch, or continue a run where it was begun."
        )
    return "torch" if obstacle else "fast"


def refuse_what_is_not_private(config: Config, algorithm: Algorithm, model: FlatModel) -> None:
    """What neither options nor noise cover."""
    if not config.private:
        return
    check_algorithm(config, algorithm)
    if len(model.vector) > len(model.parameters):
        raise FedSeqError(
            f"model {type(model.module).__name__} keeps statistics of its examples (BatchNorm's, or other buffers), "
            "and --dp-clip-norm is for parameters alone. Use a model without, such as one with GroupNorm."
        )


def examples_of(dataset: Dataset, x: np.ndarray, y: np.ndarray) -> Examples:
    with warnings.catch_warnings():  # decoded data is mapped read-only, and nobody writes to it
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return Examples(torch.from_numpy(dataset.scaled(x)), torch.from_numpy(y), dataset.mean, dataset.std)


def _digest_of(dataset: Dataset) -> str:
    return data_digest((dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test))


def data_digest(*sets: tuple[np.ndarray, np.ndarray]) -> str:
    """Of inputs and targets in any order, whoever holds them, and whichever are held out to test with."""
    rows = [
        hashlib.sha256(np.ascontiguousarray(x).tobytes() + y.tobytes()).digest()
        for inputs, targets in sets
        for x, y in zip(inputs, targets, strict=True)
    ]
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()[:16]


def split_test(config: Config, test: Examples, class_names: Sequence[str]) -> tuple[Examples | None, Examples]:
    """Public exemplars, where the run takes some, and what is left of the test set."""
    if not EXEMPLARS.holds(config):
        return None, test
    if config.checks_exemplars and not class_names:
        raise FedSeqError(
            "--update-check exemplars needs classes, and the targets are numbers: use --update-check size."
        )
    if CONFIDENCE.holds(config):
        _refuse_too_few(config.exemplars, test, class_names)
    return split_exemplars(test, config.exemplars)


def _refuse_too_few(per_class: int, test: Examples, class_names: Sequence[str]) -> None:
    """Before hours of pre-training: every class needs an exemplar, which is never the only example of it."""
    otherwise = "use --approximator classifier-all or --grouping random"
    if not per_class:
        raise FedSeqError(f"--exemplars 0 leaves nothing to estimate clients by: give 1 or more, or {otherwise}.")
    if not class_names:
        raise FedSeqError(f"--approximator confidence needs classes, and the targets are numbers: {otherwise}.")
    counts = np.bincount(test.y.cpu().numpy(), minlength=len(class_names))
    if scarce := [f"{name} ({count})" for name, count in zip(class_names, counts.tolist(), strict=True) if count < 2]:
        raise FedSeqError(
            "--approximator confidence takes an example of every class out of the test set, which holds too few of "
            f"class {', '.join(scarce[:MANY])}. Add test examples, or {otherwise}."
        )


def split_exemplars(test: Examples, per_class: int) -> tuple[Examples | None, Examples]:
    """D_pub: as many examples of each class, the same in every run.

    At most a tenth of the smallest class, or one; never the only one of a class.
    """
    labels = test.y.cpu().numpy()
    counts = np.bincount(labels)
    each = min([per_class, *(max(1, count // 10) for count in counts if count > 1)])
    rng = seeds.generator(0, "exemplars")
    shuffled = [rng.permutation(np.flatnonzero(labels == c)) for c in range(len(counts))] if each else []
    taken = np.sort(np.concatenate([found[:each] for found in shuffled if len(found) > 1] or [np.zeros(0, dtype=int)]))
    if not len(taken):
        return None, test
    return _select(test, taken), _select(test, np.setdiff1d(np.arange(len(labels)), taken))


def _select(examples: Examples, indices: np.ndarray) -> Examples:
    chosen = torch.from_numpy(indices)
    owner = None if examples.owner is None else examples.owner[chosen]
    return replace(examples, x=examples.x[chosen], y=examples.y[chosen], owner=owner)


def initial_weights(parts: Parts) -> Tensor:
    """theta_0: as the model was built, or from a file."""
    if parts.config.init_weights:
        return weights.read(Path(parts.config.init_weights), parts.model)
    return parts.theta


def card_of(parts: Parts) -> ModelCard:
    test = parts.task.test
    scaling = (part.tolist() for part in parts.scale or ())
    return ModelCard(
        str(parts.config.model), tuple(test.x.shape[1:]), parts.stored or str(test.x.dtype).removeprefix("torch."),
        parts.class_names, test.mean, test.std, *scaling,
    )  # fmt: skip
