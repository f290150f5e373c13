"""What a run is made of: the names of a config turned into data, clients, model and algorithm."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedseq import algorithms, seeds, weights
from fedseq.algorithms.base import Algorithm
from fedseq.config import Config, known
from fedseq.data import Dataset, load_dataset
from fedseq.data.partition import partition_clients
from fedseq.errors import FedSeqError
from fedseq.examples import Examples
from fedseq.jobs import Task, make_task
from fedseq.models import default_model, model_factory
from fedseq.progress import Reporter
from fedseq.superclients import criterion_of
from fedseq.weights import FlatModel


@dataclass(frozen=True)
class Parts:
    config: Config  # resolved
    task: Task
    algorithm: Algorithm
    exemplars: Examples | None = None
    groups: Sequence[tuple[int, ...]] | None = None  # superclients given by the user


def named_parts(config: Config, reporter: Reporter) -> Parts:
    """Turn the names of a resolved config into data, model and algorithm."""
    if algorithms.build(config).superclients:
        criterion_of(config)
    return parts_from(config, read_dataset(config, reporter))


def read_dataset(config: Config, reporter: Reporter) -> Dataset:
    return load_dataset(config.dataset, Path(config.data_dir) if config.data_dir else None, reporter.stage)


def parts_from(config: Config, dataset: Dataset) -> Parts:
    """The parts of a run on one machine, where the training data is dealt to clients."""
    rng = seeds.generator(config.seed, "partition")
    clients = partition_clients(dataset.y_train, known(config.num_clients), config.alpha, rng, config.partition)
    return assemble(config, dataset, clients)


def assemble(config: Config, dataset: Dataset, clients: Sequence[np.ndarray]) -> Parts:
    """A data set and its clients with the model and the algorithm that the config names."""
    model = config.model or default_model(dataset.shape)
    if config.augment == "crop-flip" and len(dataset.shape) != 3:
        raise FedSeqError(f"--augment crop-flip needs pictures, and the data has shape {dataset.shape}. Use none.")
    config = replace(config, model=model)
    factory = model_factory(model, dataset.shape, dataset.num_classes)
    exemplars, test = exemplars_and_test(dataset, config.exemplars)
    train = examples_of(dataset, dataset.x_train, dataset.y_train)
    task = make_task(config, factory, train, clients, test, dataset.num_classes)
    return Parts(config, task, algorithms.build(config), exemplars)


def exemplars_and_test(dataset: Dataset, per_class: int) -> tuple[Examples | None, Examples]:
    return split_exemplars(examples_of(dataset, dataset.x_test, dataset.y_test), per_class)


def examples_of(dataset: Dataset, x: np.ndarray, y: np.ndarray) -> Examples:
    with warnings.catch_warnings():  # decoded data is mapped read-only, and nobody writes to it
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return Examples(torch.from_numpy(x), torch.from_numpy(y), dataset.mean, dataset.std)


def split_exemplars(test: Examples, per_class: int) -> tuple[Examples | None, Examples]:
    """D_pub: examples of each class taken out of the test set, the same in every run, at most a tenth of a class."""
    labels = test.y.numpy()
    counts = np.bincount(labels) if per_class else np.zeros(0, dtype=int)
    each = min([per_class, *(max(1, count // 10) for count in counts if count)])
    rng = seeds.generator(0, "exemplars")
    chosen = [rng.permutation(np.flatnonzero(labels == c))[:each] for c in range(len(counts))] if each else []
    taken = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=int)
    left = np.setdiff1d(np.arange(len(labels)), taken)
    if not len(taken) or not len(left):
        return None, test
    return _select(test, taken), _select(test, left)


def _select(examples: Examples, indices: np.ndarray) -> Examples:
    return replace(examples, x=examples.x[torch.from_numpy(indices)], y=examples.y[torch.from_numpy(indices)])


def initial_weights(config: Config, task: Task, model: FlatModel) -> Tensor:
    if config.init_weights:
        return weights.read(Path(config.init_weights), model)
    return weights.initial(task.factory, seeds.integer(config.seed, "init")).to(config.device)
