"""Your own table, a row for each example: a column with the class, others that tell clients apart, the rest numbers.

csv:FILE      a header and lines of values, separated by commas, semicolons or tabs
parquet:FILE  a table of numbers and words, or pictures as Hugging Face stores them; * stands for several files

Columns that are asked for (--clients-by, --holdout-by) and the class are no features. Features are brought to mean 0
and standard deviation 1 over the training examples, and stay in double precision until then: two days of this year,
in seconds since 1970, are one number in single precision.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.data.dataset import Arrays, Column, Dataset, Progress, Wanted, half_scaled
from fedseq.data.labelled import matching, read_pictures
from fedseq.data.natural import LARGEST_EXACT, column_values, warn_of_merged
from fedseq.data.parquet import IMAGE_COLUMNS, column_names, read_columns
from fedseq.data.untrusted import refuse_web_page

Columns = Mapping[str, Sequence[object] | np.ndarray]
_SEPARATORS = ",;\t"
_LABEL = "label"
LARGEST_FEATURE = float(np.finfo(np.float32).max)


def load_csv(name: str, path: Path, wanted: Wanted, progress: Progress) -> Dataset:
    columns = _read_csv(path)
    progress(1, 1, "reading the table")
    return from_columns(name, str(path), columns, wanted)


def load_parquet(name: str, path: Path, wanted: Wanted, progress: Progress) -> Dataset:
    files = matching(path)
    for file in files:
        refuse_web_page(file)
    present = column_names(files[0])
    if not set(present) & set(IMAGE_COLUMNS):
        progress(1, 1, "reading the table")
        return from_columns(name, str(path), read_columns(files, present), wanted)
    labelled = read_pictures(path, (wanted.label,) if wanted.label else None)
    columns = read_columns(files, [_present(str(path), column, present) for column in wanted.columns])
    progress(1, 1, "reading pictures")
    arrays = Arrays(labelled.x, labelled.y, labelled.x[:0], labelled.y[:0])
    return half_scaled(name, arrays, labelled.class_names, _asked(str(path), columns, wanted))


def from_columns(name: str, where: str, columns: Columns, wanted: Wanted) -> Dataset:
    """A data set without a test set, of columns of equal length."""
    label = wanted.label or _LABEL
    if label not in columns:
        raise FedSeqError(
            f"{where}: no column '{label}' with the classes; it has {', '.join(columns)}. Name it with --label-column."
        )
    asked = _asked(where, columns, wanted)
    features = {key: values for key, values in columns.items() if key != label and key not in asked}
    if not features:
        raise FedSeqError(f"{where}: no column is left to learn from beside {', '.join([label, *asked])}.")
    classes, y = np.unique(column_values(where, label, columns[label]), return_inverse=True)
    x = np.stack([_numbers(where, key, values) for key, values in features.items()], axis=1)
    nothing = (x[:0], y[:0].astype(np.int64))
    return Dataset(
        name, x, y.astype(np.int64), *nothing, tuple(map(str, classes.tolist())), (), (), asked, alike=(0,),
        features=tuple(features),
    )  # fmt: skip


def _asked(where: str, columns: Columns, wanted: Wanted) -> dict[str, Column]:
    found = {}
    for name in wanted.columns:
        values = column_values(where, name, columns[_present(where, name, columns)])
        found[name] = Column(values, values[:0])
    return found


def _present(where: str, name: str, present: Mapping[str, object] | Sequence[str]) -> str:
    if name not in present:
        raise FedSeqError(f"{where}: {unknown('column', name, present)}")
    return name


def _numbers(where: str, name: str, values: Sequence[object] | np.ndarray) -> np.ndarray:
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
        raise FedSeqError(
            f"{where}: column '{name}' has {str(values[row])!r:.40} for example {row + 1}, and features must be finite "
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


def _read_csv(path: Path) -> dict[str, list[str]]:
    refuse_web_page(path)
    try:
        with open_plain(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            return _parse(path, text)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FedSeqError(f"{path} cannot be read as CSV in UTF-8: {error}.") from None


def _parse(path: Path, text: io.TextIOWrapper) -> dict[str, list[str]]:
    head = text.readline()
    separator = max(_SEPARATORS, key=head.count)
    header = [name.strip() for name in next(csv.reader([head], delimiter=separator), [])]
    if len(header) < 2 or not all(header):
        raise FedSeqError(f"{path}: the first line must name the columns, such as client,age,label.")
    if len(set(header)) < len(header):
        raise FedSeqError(f"{path}: the first line names a column twice.")
    rows: list[list[str]] = []
    for row in csv.reader(text, delimiter=separator, strict=True):
        if len(row) != len(header) and row:
            raise FedSeqError(
                f"{path}: row {len(rows) + 1} has {len(row)} values, and there are {len(header)} columns."
            )
        if row:
            rows.append(row)
    if not rows:
        raise FedSeqError(f"{path} is empty: there are no rows in it.")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
