"""Clients that exist in data that Python holds: a Hugging Face data set, or a torch one with a client function."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedseq.algorithms.base import Algorithm
from fedseq.api.federate import federate_indexed
from fedseq.api.own_examples import as_pair
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError, unknown
from fedseq.data.columns import NamedColumns, column_values, to_dataset
from fedseq.data.dataset import Column, Dataset, Wanted
from fedseq.data.real_clients import CLIENTS, EXAMPLES, client_indices, settle
from fedseq.options.config_files import coerce
from fedseq.options.grammar import CENTRALIZED
from fedseq.runs.reading import Run
from fedseq.training.reporter import Reporter

WHERE = "data"
CLIENT = "client"


def federate_by(
    model: Callable[..., nn.Module],
    data: Any,
    clients_by: str | Callable[[int], Any] | Sequence[Any],
    algorithm: str | Algorithm = "fedseq",
    *,
    label_column: str = "label",
    holdout: float = 0.2,
    holdout_by: str = EXAMPLES,
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Run:
    """As `federate`, for examples in one data set, of which a column or a function tells whose each is.

    `data` is a Hugging Face data set, with the names of the columns of clients and classes (all others are numbers, or
    one holds arrays or pictures), or a torch data set of (x, y) pairs, with a function of an example's number, or a
    list. A share is held out for the test: of each client's examples, whole clients, or whole values of a column.
    """
    read = _from_columns if hasattr(data, "column_names") else _from_pairs
    stored = read(data, clients_by, label_column, holdout_by)
    by = clients_by if isinstance(clients_by, str) else CLIENT
    rng = seeds.generator(coerce("seed", options.get("seed", 0)) or 0, "holdout")
    dataset = settle(stored, by, holdout, holdout_by, rng)
    owners = dataset.owners
    assert owners is not None
    x, y, x_test, y_test = (
        torch.from_numpy(np.ascontiguousarray(part))
        for part in (dataset.scaled(dataset.x_train), dataset.y_train, dataset.scaled(dataset.x_test), dataset.y_test)
    )
    return federate_indexed(
        model, (x, y), client_indices(owners), (x_test, y_test), algorithm, test_clients=owners.test.tolist(),
        names=() if algorithm == CENTRALIZED else owners.names, folder=folder, reporter=reporter, **options,
    )  # fmt: skip


def _from_columns(data: Any, clients_by: Any, label: str, holdout_by: str) -> Dataset:
    if not isinstance(clients_by, str):
        raise FedSeqError("clients_by must name a column of the data set.")
    columns: dict[str, np.ndarray] = {name: np.asarray(v) for name, v in data.with_format("numpy")[:].items()}
    asked = tuple(dict.fromkeys([clients_by, *([] if holdout_by in (CLIENTS, EXAMPLES) else [holdout_by])]))
    for name in (label, *asked):
        if name not in columns:
            raise unknown("column", name, columns)
    arrays = [name for name, values in columns.items() if values.ndim > 1]
    if not arrays:
        return to_dataset(WHERE, NamedColumns(WHERE, columns), Wanted(asked, label))
    x = columns[arrays[0]].astype(np.float32) / (255 if columns[arrays[0]].dtype == np.uint8 else 1)
    return _dataset(x, column_values(WHERE, label, columns[label]), {name: columns[name] for name in asked})


def _from_pairs(data: Any, clients_by: Any, label: str, holdout_by: str) -> Dataset:
    if isinstance(clients_by, str):
        raise FedSeqError(
            "clients_by must be a function of an example's number, or a list, as the data has no columns."
        )
    if holdout_by not in (CLIENTS, EXAMPLES):
        raise FedSeqError(f"holdout_by must be {CLIENTS} or {EXAMPLES}, not '{holdout_by}': the data has no columns.")
    x, y = as_pair(data, "the data set")
    if y.is_floating_point():
        raise FedSeqError("the data set's targets are numbers; clients by a function are for classes (integers).")
    count = len(y)
    who = [clients_by(number) for number in range(count)] if callable(clients_by) else list(clients_by)
    if len(who) != count:
        raise FedSeqError(f"clients_by has {len(who)} entries for {count} examples.")
    return _dataset(x.float().numpy(), y.numpy(), {CLIENT: np.asarray(who)})


def _dataset(x: np.ndarray, labels: np.ndarray, columns: dict[str, np.ndarray]) -> Dataset:
    classes, y = np.unique(labels, return_inverse=True)
    found = {name: column_values(WHERE, name, values) for name, values in columns.items()}
    named = {name: Column(values, values[:0]) for name, values in found.items()}
    y = y.astype(np.int64)
    return Dataset(WHERE, x, y, x[:0], y[:0], tuple(map(str, classes.tolist())), (), (), named)
