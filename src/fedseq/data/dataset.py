"""What every reader hands back, and the checks that it is what the catalog promises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.options.datasets import DatasetFacts

Progress = Callable[[int, int, str], None]  # done, total, what is being done


def silent(done: int, total: int, what: str) -> None:
    """The progress hook of those who do not want to know."""


class Arrays(NamedTuple):
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Column(NamedTuple):
    """Something that is known of every example, such as whose it is: words or whole numbers."""

    train: np.ndarray
    test: np.ndarray  # empty where the source does not say it of its test set, or has none


class Wanted(NamedTuple):
    """What is asked of a source beside inputs and labels."""

    columns: tuple[str, ...] = ()
    label: str | None = None  # the column with the classes, where the source has columns


NOTHING_MORE = Wanted()


class Owners(NamedTuple):
    """Whose each example is: clients by the place of their name."""

    names: tuple[str, ...]  # those that are trained on, then those that only the test set has
    train: np.ndarray  # int64 [n]
    test: np.ndarray  # int64 [m]; empty where nobody knows

    @property
    def trained(self) -> int:
        return int(self.train.max()) + 1


class Scaling(NamedTuple):
    """What is taken from features, and what they are divided by."""

    centre: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so comparing field by field would fail
class Dataset:
    name: str
    # uint8 [n, channels, height, width], float32 [n, ...] features (float64 in tables), or int64 [n, length] text
    x_train: np.ndarray
    y_train: np.ndarray  # int64 [n], 0..classes-1
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of pixels scaled to 0..1; empty for features, which are used as they are
    std: tuple[float, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)  # those that were asked for
    owners: Owners | None = None  # of clients that exist; None where the examples are dealt
    alike: tuple[int, ...] = ()  # axes over which features share a scale; empty where they are used as they are
    scale: Scaling | None = None
    features: tuple[str, ...] = ()  # names of the columns of x, in a table

    @property
    def is_text(self) -> bool:
        return self.x_train.dtype == np.int64

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x_train.shape[1:]

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Inputs as the model takes them, but for pictures, which stay integers until a batch is made."""
        return x if self.scale is None else ((x - self.scale.centre) / self.scale.spread).astype(np.float32)


def half_scaled(
    name: str, arrays: Arrays, class_names: tuple[str, ...], columns: Mapping[str, Column] | None = None
) -> Dataset:
    """A data set without published statistics: pixels are brought to -1..1, features stay as they are."""
    channels = arrays.x_train.shape[1] if arrays.x_train.dtype == np.uint8 else 0
    return Dataset(name, *arrays, class_names, (0.5,) * channels, (0.5,) * channels, columns or {})


def check_against(facts: DatasetFacts, where: str, arrays: Arrays) -> None:
    _check_split(facts, f"{where}: training set", facts.train, arrays.x_train, arrays.y_train)
    _check_split(facts, f"{where}: test set", facts.test, arrays.x_test, arrays.y_test)


def _check_split(facts: DatasetFacts, what: str, count: int, x: np.ndarray, y: np.ndarray) -> None:
    _expect(f"{what}: pictures", (x.dtype.name, x.shape), ("uint8", (count, *facts.shape)))
    _expect(f"{what}: labels", (y.dtype.name, y.shape), ("int64", (count,)))
    check_classes(facts, what, y)


def check_classes(facts: DatasetFacts, what: str, y: np.ndarray) -> None:
    if y.min() < 0 or y.max() >= facts.classes:
        raise FedSeqError(f"{what}: labels run from {y.min()} to {y.max()}, expected 0 to {facts.classes - 1}.")
    absent = np.setdiff1d(np.arange(facts.classes), y)
    if absent.size:
        raise FedSeqError(f"{what}: no picture has label {absent[0]}; all {facts.classes} classes must be present.")


def _expect(what: str, found: tuple[str, tuple[int, ...]], expected: tuple[str, tuple[int, ...]]) -> None:
    if found != expected:
        raise FedSeqError(f"{what} are {found[0]} {list(found[1])}, expected {expected[0]} {list(expected[1])}.")
