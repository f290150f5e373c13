"""Real clients: whose each example is, and who or what is held out for the test.

A test set is the source's own, or held out of the examples: a share of the groups that a column makes, such as whole
clients or people, or a share of each client's examples.
"""

import warnings
from dataclasses import replace

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.columns import warn_of_merged
from fedseq.data.dataset import Column, Dataset, Owners, Scaling

CLIENTS, EXAMPLES = "clients", "examples"


def settle(
    dataset: Dataset, clients_by: str | None, holdout: float | None, holdout_by: str, rng: np.random.Generator
) -> Dataset:
    """The data set with a test set, a scale, and whose each example is, if clients are told apart by a column."""
    if holdout is not None:
        dataset = _hold_out(dataset, clients_by, holdout, holdout_by, rng)
    elif not len(dataset.y_test):
        raise FedSeqError(f"{dataset.name} has no test set. Hold out a part of it, for example with --holdout 0.2.")
    if clients_by is not None:
        dataset = replace(dataset, owners=_owners(dataset.name, dataset.columns[clients_by], clients_by))
    _check_classes(dataset, refuse=clients_by is not None or holdout is not None)
    if not dataset.alike:
        return dataset
    dataset = replace(dataset, scale=_scale(dataset))
    scaled = dataset.scaled(dataset.x_train)
    for number, name in enumerate(dataset.features):
        before, after = (len(np.unique(x[:, number])) for x in (dataset.x_train, scaled))
        warn_of_merged(dataset.name, name, before, after)
    return dataset


def _hold_out(dataset: Dataset, clients_by: str | None, share: float, by: str, rng: np.random.Generator) -> Dataset:
    if len(dataset.y_test):
        raise FedSeqError(f"{dataset.name} has a test set of its own, so nothing is held out. Leave --holdout out.")
    if by == EXAMPLES:
        groups = dataset.columns[clients_by].train if clients_by else dataset.y_train
        test = _some_of_each(groups, share, rng)
    else:
        test = _whole_groups(dataset, clients_by if by == CLIENTS else by, share, rng)
    if not test.any():
        raise FedSeqError(f"--holdout {share:g} leaves no example of {dataset.name} to test with. Hold out more.")
    return replace(
        dataset,
        x_train=dataset.x_train[~test],
        y_train=dataset.y_train[~test],
        x_test=dataset.x_train[test],
        y_test=dataset.y_train[test],
        columns={name: Column(column.train[~test], column.train[test]) for name, column in dataset.columns.items()},
    )


def _some_of_each(groups: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A share of each group's examples, rounded, but never all of them."""
    test = np.zeros(len(groups), dtype=bool)
    for name in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == name))
        test[members[: min(round(share * len(members)), len(members) - 1)]] = True
    return test


def _whole_groups(dataset: Dataset, by: str | None, share: float, rng: np.random.Generator) -> np.ndarray:
    """All examples of a share of the groups, at least of one, and never of all."""
    assert by is not None  # which is refused with the options
    values = dataset.columns[by].train
    names = np.unique(values)
    if len(names) < 2:
        raise FedSeqError(f"{dataset.name}: there is one {by} alone, so that none can be held out. Use another column.")
    count = min(max(1, round(share * len(names))), len(names) - 1)
    return np.isin(values, rng.permutation(names)[:count])


def _owners(where: str, column: Column, by: str) -> Owners:
    trained, train = np.unique(column.train, return_inverse=True)
    tested = np.unique(column.test) if len(column.test) else trained[:0]
    strangers = tested[~np.isin(tested, trained)]
    known = tested[np.isin(tested, trained)]
    if len(strangers) and len(known):
        raise FedSeqError(
            f"{where}: {by} {known[0]} is in train and in test, and {by} {strangers[0]} in test alone. Hold out whole "
            "clients, so that nobody is in both, or a part of every client."
        )
    names = np.concatenate([trained, strangers])
    places = {name: place for place, name in enumerate(names.tolist())}
    test = np.array([places[name] for name in column.test.tolist()], dtype=np.int64)
    return Owners(tuple(map(str, names.tolist())), train.astype(np.int64), test)


def _check_classes(dataset: Dataset, refuse: bool) -> None:
    unseen = np.setdiff1d(dataset.y_test, dataset.y_train)
    if not len(unseen):
        return
    alone = f"{dataset.name}: class {dataset.class_names[unseen[0]]} is in the test set alone, so that nobody"
    if refuse:
        raise FedSeqError(
            f"{alone} could learn it. Hold out less, or others with another --seed, or leave the class out."
        )
    warnings.warn(f"{alone} learns it.", stacklevel=2)


def _scale(dataset: Dataset) -> Scaling:
    """Features are brought to mean 0 and standard deviation 1 over the training examples; constant ones to 0."""
    x = dataset.x_train.astype(np.float64)
    parts = (part(axis=dataset.alike, keepdims=True)[0] for part in (x.mean, x.std, x.min, x.max))
    centre, spread, least, most = parts
    constant = least == most  # of which the mean may be rounded, so that it has a spread
    return Scaling(np.where(constant, least, centre), np.where(constant | (spread == 0), 1.0, spread))


def client_indices(owners: Owners) -> list[np.ndarray]:
    """Each client's training examples, in their order."""
    order = np.argsort(owners.train, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners.train))[:-1])
