"""Pictures and labels in the parquet files of Hugging Face: a struct with the encoded picture, and a number."""

import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedseq.catalog import DatasetFacts
from fedseq.data.dataset import Arrays, Progress
from fedseq.data.guard import optional, refuse_web_page
from fedseq.data.images import Encoded, decode_all
from fedseq.errors import FedSeqError

_IMAGE_COLUMNS = ("img", "image")
_ROWS_AT_ONCE = 1000  # keeps little more than the decoded pictures in memory


def read_parquet(
    train: tuple[Path, ...],
    test: tuple[Path, ...],
    label_columns: tuple[str, ...],
    facts: DatasetFacts,
    progress: Progress,
) -> Arrays:
    y_train = _counted_labels(train, label_columns, facts.train)
    y_test = _counted_labels(test, label_columns, facts.test)
    channels, height, width = facts.shape
    mode = "RGB" if channels == 3 else "L"
    x = decode_all(encoded_pictures(train + test), facts.train + facts.test, (width, height), mode, progress)
    return Arrays(x[: facts.train], y_train, x[facts.train :], y_test)


def _counted_labels(files: tuple[Path, ...], choices: tuple[str, ...], count: int) -> np.ndarray:
    """Read and counted before any picture is decoded, which takes much longer."""
    labels = read_labels(files, choices, count)
    if len(labels) != count:
        names = ", ".join(file.name for file in files)
        raise FedSeqError(f"{files[0].parent}: {names} hold {len(labels)} pictures, expected {count}.")
    return labels


def read_labels(files: tuple[Path, ...], choices: tuple[str, ...], limit: int | None = None) -> np.ndarray:
    """The first of these columns that a file has; `limit` is how many rows it may have at most."""
    return np.concatenate([_labels(file, choices, limit) for file in files])


def _labels(file: Path, choices: tuple[str, ...], limit: int | None) -> np.ndarray:
    refuse_web_page(file)
    with _opened(file) as table:
        if limit is not None and table.metadata.num_rows > limit:
            raise FedSeqError(f"{file}: {table.metadata.num_rows} pictures, expected no more than {limit}.")
        name = _column(file, table, choices)
        labels = table.read([name]).column(name).to_numpy()
        _check_rows(file, table, len(labels))
    if not np.issubdtype(labels.dtype, np.integer):  # a missing label makes them floating point
        raise FedSeqError(f"{file}: labels must be whole numbers, all of them present; they are {labels.dtype}.")
    return labels.astype(np.int64)


def encoded_pictures(files: tuple[Path, ...]) -> Iterator[Encoded]:
    for file in files:
        with _opened(file) as table:
            rows = itertools.count()
            for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[_column(file, table, _IMAGE_COLUMNS)]):
                for picture in _encoded(file, batch.column(0)):
                    yield io.BytesIO(picture), f"{file}, row {next(rows)}"
            _check_rows(file, table, next(rows))


def _encoded(file: Path, column: Any) -> list[bytes]:
    types = optional("pyarrow").types
    if not types.is_struct(column.type) or column.type.get_field_index("bytes") < 0:
        raise FedSeqError(f"{file}: the pictures are not structs with a field 'bytes', but {column.type}.")
    pictures = column.field("bytes").to_pylist()
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
            yield table
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:  # the last two: names of columns
        raise FedSeqError(f"{file} is damaged or no parquet file: {error}. Get the file again.") from error


def _column(file: Path, table: Any, choices: tuple[str, ...]) -> str:
    present = table.schema_arrow.names
    for choice in choices:
        if choice in present:
            return choice
    raise FedSeqError(f"{file}: no column {' or '.join(choices)}; it has {', '.join(present)}.")
