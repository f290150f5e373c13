"""Pictures and labels in the parquet files of Hugging Face: a struct with the encoded picture, and a number."""

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.pictures import Encoded
from fedseq.data.untrusted import optional, refuse_growth, refuse_web_page

IMAGE_COLUMNS = ("img", "image")
_BYTES = 8  # of a number, as it is read
_KINDS = {**dict.fromkeys("iuf", "numbers"), "b": "truth values", "M": "times", "m": "durations"}
_ROWS_AT_ONCE = 1000  # keeps little more than the decoded pictures in memory


def read_labels(files: tuple[Path, ...], choices: tuple[str, ...], limit: int | None = None) -> np.ndarray:
    """The first of these columns that a file has; `limit` is how many rows it may have at most."""
    return np.concatenate([_labels(file, choices, limit) for file in files])


def _labels(file: Path, choices: tuple[str, ...], limit: int | None) -> np.ndarray:
    refuse_web_page(file)
    with _opened(file) as table:
        if limit is not None and table.metadata.num_rows > limit:
            raise FedSeqError(f"{file}: {table.metadata.num_rows} pictures, expected no more than {limit}.")
        name = _column(file, table, choices)
        labels: np.ndarray = table.read([name]).column(name).to_numpy()
        _check_rows(file, table, len(labels))
    if not np.issubdtype(labels.dtype, np.integer):  # a missing label makes them floating point
        raise FedSeqError(f"{file}: labels must be whole numbers, all of them present; they are {labels.dtype}.")
    if labels.size and labels.max() > np.iinfo(np.int64).max:
        raise FedSeqError(f"{file}: label {labels.max()}; number the classes from 0.")
    return labels.astype(np.int64)


def column_names(file: Path) -> list[str]:
    with _opened(file) as table:
        return list(table.schema_arrow.names)


def read_columns(files: tuple[Path, ...], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of numbers and words as arrays; what is missing in one becomes NaN or None."""
    parts = [_columns(file, names) for file in files]
    for file, part in zip(files, parts, strict=True):
        for name in names:
            kinds = [_KINDS.get(found[name].dtype.kind, "words") for found in (parts[0], part)]
            if kinds[0] != kinds[1]:
                raise FedSeqError(
                    f"{file}: column '{name}' holds {kinds[1]}, and in {files[0].name} {kinds[0]}. "
                    "Give it one type in all files."
                )
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _columns(file: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    with _opened(file) as table:
        read = table.read(list(names))
        missing = sorted(set(names) - set(read.column_names))
        if missing:
            raise FedSeqError(f"{file}: no column {missing[0]}; it has {', '.join(read.column_names)}.")
        found = {name: _decoded(read.column(name)).to_numpy(zero_copy_only=False) for name in names}
        for values in found.values():
            _check_rows(file, table, len(values))
    return found


def _decoded(column: Any) -> Any:
    """Words that are stored by number, as categories of pandas: `to_numpy` takes a missing number for one of them."""
    is_dictionary = optional("pyarrow").types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def encoded_pictures(files: tuple[Path, ...]) -> Iterator[Encoded]:
    for file in files:
        with _opened(file) as table:
            rows = itertools.count()
            for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[_column(file, table, IMAGE_COLUMNS)]):
                for picture in _encoded(file, batch.column(0)):
                    yield io.BytesIO(picture), f"{file}, row {next(rows)}"
            _check_rows(file, table, next(rows))


def _encoded(file: Path, column: Any) -> list[bytes]:
    types = optional("pyarrow").types
    if not types.is_struct(column.type) or column.type.get_field_index("bytes") < 0:
        raise FedSeqError(f"{file}: the pictures are not structs with a field 'bytes', but {column.type}.")
    pictures: list[bytes] = column.field("bytes").to_pylist()
    if not all(isinstance(picture, bytes) for picture in pictures):
        raise FedSeqError(f"{file}: a picture without bytes.")
    return pictures


def _check_rows(file: Path, table: Any, found: int) -> None:
    """Each column of a damaged file may have a length of its own."""
    if found != table.metadata.num_rows:
        raise FedSeqError(f"{file} is damaged: {found} values for {table.metadata.num_rows} rows. Get the file again.")


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    arrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    try:
        with parquet.ParquetFile(file) as table:
            refuse_growth(file, file.stat().st_size, table.metadata.num_rows * table.metadata.num_columns * _BYTES)
            yield table
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:  # the last two: names of columns
        raise FedSeqError(f"{file} is damaged or no parquet file: {error}. Get the file again.") from error


def _column(file: Path, table: Any, choices: tuple[str, ...]) -> str:
    present = table.schema_arrow.names
    for choice in choices:
        if choice in present:
            return choice
    raise FedSeqError(f"{file}: no column {' or '.join(choices)}; it has {', '.join(present)}.")
