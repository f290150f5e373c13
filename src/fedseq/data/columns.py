"""From named columns to a data set: the one place that decides about classes, clients, inputs and what is missing.

Readers of files, and of data that Python holds, give columns of equal length and say which hold inputs and classes. In
a table every other column is a number to learn from, in double precision until the features are brought to mean 0 and
standard deviation 1 over the training examples: two days of this year, in seconds since 1970, are one number in single
precision. Arrays of inputs are pictures (uint8), text (uint8 [n, length]) or features (floating point, used as they
are).
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedseq.basics.errors import MANY, FedSeqError, unknown
from fedseq.data.dataset import Arrays, Column, Dataset, Wanted, half_scaled

Values = Sequence[object] | np.ndarray
Columns = Mapping[str, Values]
ClassNames = tuple[str, ...]

LARGEST, LARGEST_EXACT = np.iinfo(np.int64).max, 2**53  # whole numbers; beyond the latter floats are not exact
LARGEST_FEATURE = float(np.finfo(np.float32).max)
MOST_KEPT = 0.95  # of a column's different values: of a million evenly spread numbers, 98 in 100 stay different
_WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0*)?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class NamedColumns:
    """What a source holds, as columns of equal length."""

    where: str  # named in errors
    train: Columns
    test: Columns | None = None  # a test set of its own
    inputs: str | None = None  # the column with arrays; None in a table, where all that are left are features
    label: str = "label"
    numbered: bool = (
        False  # classes are numbers from 0, of these names if there are any; else they are what stands there
    )
    class_names: ClassNames | None = None
    suffixes: tuple[str, str] = ("", "")  # what columns are called in errors, after their names

    @property
    def splits(self) -> list[tuple[str, Columns]]:
        both = zip(self.suffixes, (self.train, self.test), strict=True)
        return [(suffix, columns) for suffix, columns in both if columns is not None]


def to_dataset(name: str, stored: NamedColumns, wanted: Wanted) -> Dataset:
    label = wanted.label or stored.label
    for _, columns in stored.splits:
        if label not in columns:
            raise FedSeqError(
                f"{stored.where}: no column '{label}' with the classes; it has {', '.join(columns)}. "
                "Name it with --label-column."
            )
    asked = {column: _asked(stored, column) for column in wanted.columns}
    features = [key for key in stored.train if key != label and key not in asked] if stored.inputs is None else []
    if stored.inputs is None and not features:
        raise FedSeqError(f"{stored.where}: no column is left to learn from beside {', '.join([label, *asked])}.")
    x = [_features(stored.where, columns, features) for _, columns in stored.splits] if features else _arrays(stored)
    y, class_names = _classes(stored, label, x, None)
    x_test, y_test = (x[1], y[1]) if len(x) > 1 else (x[0][:0], y[0][:0])
    arrays = Arrays(x[0], y[0], x_test, y_test)
    if not features:
        return half_scaled(name, arrays, class_names, asked)
    return Dataset(name, *arrays, class_names, (), (), asked, alike=(0,), features=tuple(features))


@dataclass(frozen=True, eq=False)  # as for Dataset, comparing field by field would fail
class Labelled:
    """One set of labelled examples: what a client of a real federation has, or the server to test with."""

    x: np.ndarray  # uint8 [n, channels, height, width], or float32 or float64 [n, ...] features
    y: np.ndarray  # int64 [n], 0..classes-1
    class_names: ClassNames


def to_labelled(stored: NamedColumns, class_names: ClassNames | None, features: str) -> Labelled:
    """`class_names` are those that the server names; without them, the set itself says what they are."""
    (x,) = _arrays(stored, features)
    (y,), names = _classes(stored, stored.label, [x], class_names)
    return Labelled(x, y, names)


def column_values(where: str, name: str, values: Values) -> np.ndarray:
    """Whole numbers, or else words: what clients and classes are told apart by. Nothing may be missing."""
    found = np.asarray(values)
    if found.ndim != 1:
        raise FedSeqError(f"{where}: {name} has shape {list(found.shape)}; it must have one value for each example.")
    if found.dtype.kind in "iu" and (found <= LARGEST).all():
        return found.astype(np.int64)
    if found.dtype.kind == "f" and (np.abs(found) <= LARGEST_EXACT).all() and (found == np.rint(found)).all():
        return found.astype(np.int64)
    if found.dtype.kind in "mM":  # whose values are numbers in Python, or are not, by their precision
        found = np.where(np.isnat(found), "", found.astype(str))
    words = np.array(["" if _is_missing(value) else str(value).strip() for value in found.tolist()])
    if not words.all():
        raise FedSeqError(
            f"{where}: example {int(np.argmin(words != '')) + 1} has no {name}; every example needs one. "
            "(In a csv file NA, nan and null stand for a missing value, unless in quotes.)"
        )
    different = np.unique(words).tolist()
    if all(_WHOLE.fullmatch(word) for word in different):  # also as "1.0", which pandas writes beside missing ones
        return np.array([int(word.partition(".")[0]) for word in words.tolist()], dtype=np.int64)
    known: dict[float, str] = {}
    for word in filter(_DECIMAL.fullmatch, different):
        other = known.setdefault(float(word), word)
        if other != word and set(other + word) & set(".eE"):  # unlike 007 and 7, which may be two names
            raise FedSeqError(f"{where}: {name} is '{other}' and '{word}', which are one number. Write it in one way.")
    return words


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN


def _asked(stored: NamedColumns, name: str) -> Column:
    """A column that clients or what is held out are told by; the test set need not have it."""
    found = []
    for suffix, columns in stored.splits:
        if name in columns:
            found.append(column_values(stored.where, f"{name}{suffix}", columns[name]))
            _, first = next(iter(columns.items()))
            if len(found[-1]) != len(first):
                raise FedSeqError(f"{stored.where}: {name} has {len(found[-1])} values for {len(first)} examples.")
        elif not found:
            raise FedSeqError(f"{stored.where}: {unknown('column', f'{name}{suffix}', columns)}")
    if len(found) > 1 and found[0].dtype.kind != found[1].dtype.kind:
        found = [values.astype(str) for values in found]
    return Column(found[0], found[1] if len(found) > 1 else found[0][:0])


def _classes(
    stored: NamedColumns, label: str, x: Sequence[np.ndarray], expected: ClassNames | None
) -> tuple[list[np.ndarray], ClassNames]:
    """The number of each example's class, and what classes are called."""
    given = [(f"{label}{suffix}", columns[label]) for suffix, columns in stored.splits]
    if not stored.numbered:
        values = [column_values(stored.where, key, labels) for key, labels in given]
        if len({part.dtype.kind for part in values}) > 1:
            values = [part.astype(str) for part in values]
        names, y = np.unique(np.concatenate(values), return_inverse=True)
        parts = np.split(y.astype(np.int64), np.cumsum([len(part) for part in values])[:-1])
        return parts, tuple(map(str, names.tolist()))
    numbers = [_numbers_of_classes(stored.where, key, labels) for key, labels in given]
    most = max(int(part.max()) for part in numbers)
    class_names = expected or stored.class_names
    if class_names is not None and most >= len(class_names):
        shown = [f"{number} {name}" for number, name in enumerate(class_names)]
        listed = ", ".join(shown if len(shown) <= MANY else [*shown[:3], "...", shown[-1]])
        raise FedSeqError(
            f"{stored.where}: label {most}, but the server names {len(class_names)} classes. "
            f"Number yours as it does: {listed}."
        )
    if class_names is None:
        text = [part.ravel() for part in x if part.dtype == np.int64]  # all its characters may come next
        most = max([most, *(int(part.max()) for part in text)])
        examples = sum(len(part) for part in (*numbers, *text))
        if most >= examples:  # a number beyond all sense would make a model of that size
            raise FedSeqError(f"{stored.where}: label {most} among {examples} examples; number the classes from 0.")
        absent = [] if text else np.setdiff1d(np.arange(most + 1), np.concatenate(numbers)).tolist()
        if len(absent):
            more = f" and {len(absent) - 1} more" if absent[1:] else ""
            warnings.warn(
                f"{stored.where}: no example has label {absent[0]}{more}, and the model will have an output for each "
                f"number from 0 to {most}. Number the classes from 0 without gaps.",
                stacklevel=2,
            )
        class_names = tuple(map(str, range(most + 1)))
    return [part.astype(np.int64) for part in numbers], class_names


def _numbers_of_classes(where: str, key: str, values: Values) -> np.ndarray:
    labels = np.asarray(values)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        shape = f" {list(labels.shape)}" if labels.ndim != 1 else ""
        raise FedSeqError(f"{where}: {key} must be a list of integers, not {labels.dtype}{shape}.")
    if not len(labels):
        raise FedSeqError(f"{where} is empty: there are no rows in it.")
    if labels.min() < 0:
        raise FedSeqError(f"{where}: {key} has the label {labels.min()}; classes are numbered from 0.")
    return labels


def _arrays(stored: NamedColumns, features: str = "float32") -> list[np.ndarray]:
    assert stored.inputs is not None
    found = []
    for suffix, columns in stored.splits:
        key, x, labels = (
            f"{stored.inputs}{suffix}",
            np.asarray(columns[stored.inputs]),
            np.asarray(columns[stored.label]),
        )
        if labels.ndim == 1 and (x.ndim == 0 or len(x) != len(labels)):
            raise FedSeqError(
                f"{stored.where}: {stored.label}{suffix} has {len(labels)} labels, but {key} has shape "
                f"{list(x.shape)}; there must be one label for each example."
            )
        if x.size == 0:
            raise FedSeqError(f"{stored.where}: {key} is empty.")
        found.append(_inputs(stored.where, key, x, features))
    if len({(x.dtype, x.shape[1:]) for x in found}) > 1:
        words = " and ".join(
            f"{stored.inputs}{suffix} {'holds ' if not number else ''}{x.dtype} {list(x.shape[1:])}"
            for number, (suffix, x) in enumerate(zip(stored.suffixes, found, strict=True))
        )
        raise FedSeqError(f"{stored.where}: {words}; both must have the same type and shape.")
    return found


def _inputs(where: str, key: str, x: np.ndarray, kind: str) -> np.ndarray:
    """Pictures: [n, height, width] gets a channel, and channels that come last are put first where that is clear."""
    if x.dtype == np.uint8 and x.ndim == 2:
        return x.astype(np.int64)  # text
    if x.dtype == np.uint8:
        if x.ndim == 3:
            return x[:, None]
        if x.ndim != 4:
            raise FedSeqError(
                f"{where}: {key} is uint8 with {x.ndim} dimensions; pictures have 3 or 4, features are float."
            )
        channels_last = x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if channels_last else x
    if not np.issubdtype(x.dtype, np.floating):
        raise FedSeqError(f"{where}: {key} is {x.dtype}; pictures must be uint8 and features floating point.")
    if x.ndim < 2:
        raise FedSeqError(
            f"{where}: {key} has shape {list(x.shape)}; give each example a row of features, as {key}[:, None] has."
        )
    with np.errstate(over="ignore"):  # what the type cannot hold becomes infinite, and is refused below
        features = x.astype(kind)
    if not np.isfinite(features).all():
        raise FedSeqError(f"{where}: {key} has values that are not finite numbers in {kind} (NaN or infinite).")
    return features


def _features(where: str, columns: Columns, names: Sequence[str]) -> np.ndarray:
    for name in names:
        if name not in columns:
            raise FedSeqError(f"{where}: no column '{name}' in the test set.")
    return np.stack([_numbers(where, name, columns[name]) for name in names], axis=1)


def _numbers(where: str, name: str, values: Values) -> np.ndarray:
    given = np.asarray(values)
    if given.dtype.kind in "mM":
        given = _seconds(given)
    try:
        found = given.astype(np.float64)
    except (TypeError, ValueError):
        found = np.array([_number(value) for value in values])
    sound = np.abs(found) <= LARGEST_FEATURE
    if found.ndim != 1 or not sound.all():
        row = 0 if found.ndim != 1 else int(np.argmin(sound))
        shown = "no value" if values[row] is None else repr(str(values[row]))[:40]
        raise FedSeqError(
            f"{where}: column '{name}' has {shown} for example {row + 1}, and features must be finite "
            "numbers of at most 3.4e+38. Leave the column out, code it as numbers, or fill in what is missing."
        )
    if (np.abs(found) > LARGEST_EXACT).any():
        warn_of_merged(where, name, len(set(given.tolist())), len(np.unique(found)))
    return found


def _seconds(times: np.ndarray) -> np.ndarray:
    """Dates and timestamps as Unix times, seconds since 1970 in UTC; durations as seconds; what is missing as NaN."""
    passed, second = times - np.datetime64(0, "s") if times.dtype.kind == "M" else times, np.timedelta64(1, "s")
    with np.errstate(invalid="ignore"):  # what is missing has no whole seconds, and its rest is NaN
        whole, rest = np.divmod(passed, second)  # nanoseconds since 1970 are beyond what float64 holds exactly
    found: np.ndarray = whole + rest / second
    return found


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError):
        return float("nan")


def warn_of_merged(where: str, name: str, before: int, after: int) -> None:
    """Say so if many different values of a column have become equal: single precision has a limit at any scale."""
    if after < MOST_KEPT * before:
        warnings.warn(
            f"{where}: column '{name}' has {before} different values, and the model can tell only {after} of them "
            "apart: the others are too close to each other beside the range of the column. Leave the column out, "
            "subtract its smallest value, or take logarithms.",
            stacklevel=2,
        )
