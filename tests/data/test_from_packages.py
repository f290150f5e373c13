"""The federations that packages carry: what is inside is what the catalog says, and nothing of a pickle is run."""

import hashlib
import io
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import from_packages, load_dataset
from fedseq.data.dataset import Wanted, silent
from fedseq.data.from_packages import SMARTWATCH_FILE, VOWELS_FILES
from fedseq.options.datasets import CATALOG
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import deal, read_dataset
from fedseq.training.reporter import QUIET

from .builders import Trap


def _saved(value: Any) -> bytes:
    """As numpy saves an object, in the pickle protocol of the published file."""
    stream = io.BytesIO()
    array = np.empty((), dtype=object)
    array[()] = value
    np.lib.format.write_array(stream, array, allow_pickle=True)
    header = stream.getvalue()[: stream.getvalue().index(b"\n") + 1]
    return header + pickle.dumps(array, protocol=2)


def _record(**changes: Any) -> dict[str, Any]:
    """Two sessions of 250 and 120 readings: three windows of 100."""
    steps = np.arange(250 * 6, dtype=np.float64).reshape(250, 6)
    record = {
        "X": [steps, -steps[:120]], "y": np.array([0, 6]), "subject": np.array([3, 10]), "side": np.array([1.0, 0.0]),
        "y_labels": ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"],
    }  # fmt: skip
    return record | changes


def _load(monkeypatch: pytest.MonkeyPatch, folder: Path, contents: bytes, *columns: str) -> Any:
    (folder / SMARTWATCH_FILE).write_bytes(contents)
    monkeypatch.setattr(from_packages, "SMARTWATCH_SHA256", hashlib.sha256(contents).hexdigest())
    return load_dataset("smartwatch", folder, silent, Wanted(columns))


def test_sessions_are_cut_into_windows_of_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = _load(monkeypatch, tmp_path, _saved(_record()), "session", "person", "side")
    assert dataset.x_train.shape == (3, 6, 100)
    assert dataset.x_train[1, 2, 5] == (100 + 5) * 6 + 2  # the second window's sixth reading, third direction
    assert dataset.x_train[2, 1, 7] == -(7 * 6 + 1)
    assert dataset.y_train.tolist() == [0, 0, 6]
    assert dataset.columns["session"].train.tolist() == ["03-PEN-right", "03-PEN-right", "10-ROW-left"]
    assert dataset.columns["person"].train.tolist() == ["03", "03", "10"]
    assert dataset.columns["side"].train.tolist() == ["right", "right", "left"]


def test_a_file_without_the_published_digest_is_not_opened(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for contents in (_saved({"X": Trap(trace)}), _saved(_record()), b""):
        (tmp_path / SMARTWATCH_FILE).write_bytes(contents)
        with pytest.raises(FedSeqError, match=r"not the file that seglearn 1\.2\.5 carries.* was not opened"):
            load_dataset("smartwatch", tmp_path)
        assert not trace.exists()


def test_an_unknown_column_and_a_missing_file_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedSeqError, match=r"unknown column 'arm'\. Valid: person, session, side"):
        _load(monkeypatch, tmp_path, _saved(_record()), "arm")
    with pytest.raises(FedSeqError, match="which the package aeon carries"):
        load_dataset("vowels", tmp_path)


def test_the_smartwatch_federation() -> None:
    """98 sessions of seven people to train on, one exercise each, and three people nobody has seen."""
    if find_spec("seglearn") is None:
        pytest.skip("pip install '.[smartwatch]'")
    config = resolve({"dataset": "smartwatch"})
    dataset = read_dataset(config, QUIET)
    clients = deal(config, dataset)
    assert len(dataset.y_train) + len(dataset.y_test) == CATALOG["smartwatch"].train
    assert (len(clients), dataset.shape, dataset.num_classes) == (98, (6, 100), 7)
    assert all(len(np.unique(dataset.y_train[client])) == 1 for client in clients)
    people = dataset.columns["person"]
    assert (len(np.unique(people.train)), len(np.unique(people.test))) == (7, 3)
    assert not np.isin(people.test, people.train).any()
    scaled = dataset.scaled(dataset.x_train)
    np.testing.assert_allclose(scaled.mean(axis=(0, 2)), np.zeros(6), atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=(0, 2)), np.ones(6), atol=1e-5)


def _line(length: int, speaker: int) -> str:
    return ":".join(
        [*(",".join(f"{coefficient}.{t:02d}" for t in range(length)) for coefficient in range(12)), str(speaker)]
    )


def _vowels(folder: Path, train: str, test: str) -> Any:
    for file, text in zip(VOWELS_FILES, (train, test), strict=True):
        (folder / file).write_text(f"#words\n@problemName JapaneseVowels\n@data\n{text}\n")
    return load_dataset("vowels", folder, silent, Wanted(("speaker",)))


def test_utterances_are_padded_and_belong_to_their_speaker(tmp_path: Path) -> None:
    dataset = _vowels(tmp_path, f"{_line(7, 2)}\n{_line(29, 9)}", _line(8, 2))
    assert dataset.x_train.shape == (2, 12, 29)
    assert dataset.x_train[0, 3, :8].tolist() == [np.float32(f"3.0{t}") for t in range(7)] + [0.0]
    assert (dataset.y_train.tolist(), dataset.y_test.tolist()) == ([1, 8], [1])
    assert (dataset.columns["speaker"].train.tolist(), dataset.columns["speaker"].test.tolist()) == ([2, 9], [2])


@pytest.mark.parametrize(
    "line", ["", "1,2:3", _line(30, 1), _line(7, 0), _line(7, 10), _line(7, 1).replace("3.01", "inf")]
)
def test_what_are_not_the_vowels_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(FedSeqError, match="not the vowels data"):
        _vowels(tmp_path, line, _line(7, 1))


def test_the_vowels_federation() -> None:
    """Nine phones that each heard their owner 30 times."""
    if find_spec("aeon") is None:
        pytest.skip("pip install --no-deps aeon")
    config = resolve({"dataset": "vowels"})
    dataset = read_dataset(config, QUIET)
    facts = CATALOG["vowels"]
    assert (len(dataset.y_train), len(dataset.y_test), dataset.shape) == (facts.train, facts.test, facts.shape)
    assert [np.unique(dataset.y_train[client]).tolist() for client in deal(config, dataset)] == [[n] for n in range(9)]
