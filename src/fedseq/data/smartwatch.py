"""Shoulder exercises with a smartwatch (Burns et al., 2018), from the file that the package seglearn carries.

Ten people did seven exercises with each arm: 140 sessions of 19 to 52 seconds, in which the watch wrote down
acceleration and rotation in three directions, 50 times a second. An example is two seconds of a session. The file is
a pickle, which is read by a reader that runs nothing of it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.data.dataset import Column, Dataset, Progress, Wanted
from fedseq.data.packaged import packaged_files
from fedseq.data.unpickle import BATCH_LIMIT, load_record
from fedseq.options.datasets import CATALOG

FILE = "watch_dataset.npy"
WINDOW = 100  # readings: two seconds
_CODES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")  # the classes in the order of their numbers


def load(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    """All windows, without a test set: which people or sessions are held out is the run's to say."""
    (path,) = packaged_files(name, "seglearn", "data", (FILE,), data_dir)
    with open_plain(path) as file:
        record = load_record(file.read(BATCH_LIMIT + 1), str(path))
    sessions, labels, columns = _sessions(path, record)
    windows = [_windows(session) for session in sessions]
    counts = [len(each) for each in windows]
    x, y = np.concatenate(windows), np.repeat(labels, counts)
    asked = {key: np.repeat(_chosen(columns, key), counts) for key in wanted.columns}
    return Dataset(
        name, x, y, x[:0], y[:0], CATALOG[name].class_names, (), (),
        {key: Column(values, values[:0]) for key, values in asked.items()}, alike=(0, 2),
    )  # fmt: skip


def _sessions(path: Path, record: dict[str, Any]) -> tuple[list[np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """What each session recorded, its exercise, and what else is known of it. All is checked: it was a pickle."""
    sessions = record.get("X")
    given = (record.get(key) for key in ("y", "subject", "side"))
    arrays = [value for value in given if isinstance(value, np.ndarray) and value.ndim == 1]
    if not isinstance(sessions, list) or len(arrays) != 3 or {len(value) for value in arrays} != {len(sessions)}:
        raise FedSeqError(f"{path}: not the smartwatch data: no X, y, subject and side with an entry for each session.")
    labels, people, sides = arrays
    if tuple(record.get("y_labels") or ()) != _CODES or not np.isin(labels, range(len(_CODES))).all():
        raise FedSeqError(f"{path}: not the smartwatch data: the exercises are not {', '.join(_CODES)}.")
    for session in sessions:
        right = isinstance(session, np.ndarray) and session.ndim == 2 and session.shape[1] == 6
        if not right or len(session) < WINDOW or not np.isfinite(session).all():
            raise FedSeqError(f"{path}: not the smartwatch data: a session without six finite values for each reading.")
    who = [f"{int(person):02d}" for person in people]
    side = np.where(sides == 1, "right", "left")
    names = [f"{person}-{_CODES[int(label)]}-{arm}" for person, label, arm in zip(who, labels, side, strict=True)]
    return sessions, labels.astype(np.int64), {"session": np.array(names), "person": np.array(who), "side": side}


def _windows(session: np.ndarray) -> np.ndarray:
    """Pieces of two seconds one after another, [pieces, 6, 100]; what is left at the end is dropped."""
    count = len(session) // WINDOW
    return session[: count * WINDOW].reshape(count, WINDOW, 6).transpose(0, 2, 1).astype(np.float32)


def _chosen(columns: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in columns:
        raise unknown("column", name, columns)
    return columns[name]
