"""Nine men saying two Japanese vowels (Kudo et al., 1999), from the files that the package aeon carries.

An example is one utterance: 12 coefficients of the sound for each of 7 to 29 moments, followed by zeros up to 29. The
class is the speaker, and so is the client: a phone hears its owner. The test set is the published one.
"""

from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.data.dataset import Column, Dataset, Progress, Wanted
from fedseq.data.packaged import packaged_files
from fedseq.options.datasets import CATALOG

FILES = ("JapaneseVowels_TRAIN.ts", "JapaneseVowels_TEST.ts")
SPEAKER = "speaker"
_LARGEST = 20 * 2**20  # bytes; the files have half a million


def load(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    files = packaged_files(name, "aeon", "datasets/data/JapaneseVowels", FILES, data_dir)
    (x_train, y_train), (x_test, y_test) = (_read(name, file) for file in files)
    for column in wanted.columns:
        if column != SPEAKER:
            raise unknown("column", column, [SPEAKER])
    columns = {column: Column(y_train + 1, y_test + 1) for column in wanted.columns}
    return Dataset(
        name, x_train, y_train, x_test, y_test, CATALOG[name].class_names, (), (), columns, alike=(0, 2)
    )  # fmt: skip


def _read(name: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Lines of coefficients, each as its values over time, with colons between them and the speaker at the end."""
    with open_plain(path) as file:
        text = file.read(_LARGEST).decode("utf-8", "replace")
    _, _, lines = text.partition("@data")
    try:
        parsed = [_utterance(line, *CATALOG[name].shape) for line in lines.split("\n") if line.strip()]
        x, y = np.stack([x for x, _ in parsed]), np.array([speaker for _, speaker in parsed], dtype=np.int64) - 1
    except ValueError as error:
        raise FedSeqError(f"{path}: not the vowels data, or damaged: {error}.") from None
    if not np.isfinite(x).all() or y.min() < 0 or y.max() >= CATALOG[name].classes:
        raise FedSeqError(f"{path}: not the vowels data: a value that is not finite, or a speaker who is not 1 to 9.")
    return x, y


def _utterance(line: str, coefficients: int, moments: int) -> tuple[np.ndarray, int]:
    *series, speaker = line.strip().split(":")
    if len(series) != coefficients:
        raise ValueError(f"{len(series)} coefficients in place of {coefficients}")
    values = np.array([[float(value) for value in one.split(",")] for one in series], dtype=np.float32)
    if values.shape[1] > moments:
        raise ValueError(f"an utterance of {values.shape[1]} moments")
    return np.pad(values, ((0, 0), (0, moments - values.shape[1]))), int(speaker)
