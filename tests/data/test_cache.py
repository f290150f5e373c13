import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq.data import load_dataset
from fedseq.data.cache import cache_dir
from fedseq.data.dataset import Arrays

from .builders import assert_same, small_cifar, write_parquet, write_pictures


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    return small_cifar(monkeypatch, "cifar10")


@pytest.fixture
def folder(arrays: Arrays, tmp_path: Path) -> Path:
    place = tmp_path / "data"
    write_parquet(place / "train.parquet", arrays.x_train, arrays.y_train, "img", "label")
    write_parquet(place / "test.parquet", arrays.x_test, arrays.y_test, "img", "label")
    return place


def _files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() or path.name.startswith("writing-")]


def _load(folder: Path) -> tuple[Any, int]:
    """The data set, and how often its decoder said something."""
    calls = []
    dataset = load_dataset("cifar10", folder, lambda done, total, what: calls.append(done))
    return dataset, len(calls)


def test_second_start_does_not_decode(folder: Path, arrays: Arrays, cache: Path) -> None:
    assert _load(folder)[1] > 0
    for file in folder.iterdir():  # nothing is left to decode, but the size and the time of change are the same
        state = file.stat()
        file.write_bytes(b"\0" * state.st_size)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    dataset, calls = _load(folder)
    assert_same(dataset, arrays)
    assert calls == 0
    assert len(_files(cache)) == 1


def test_changed_source_is_decoded_again(folder: Path, arrays: Arrays) -> None:
    _load(folder)
    inverted = arrays._replace(x_test=255 - arrays.x_test)
    write_parquet(folder / "test.parquet", inverted.x_test, inverted.y_test, "img", "label")
    assert_same(_load(folder)[0], inverted)


def _truncate(entry: Path) -> None:
    os.truncate(entry, entry.stat().st_size - 1000)


def _flip_a_pixel(entry: Path) -> None:
    contents = bytearray(entry.read_bytes())
    contents[len(contents) // 2] ^= 1
    entry.write_bytes(contents)


def _empty(entry: Path) -> None:
    entry.write_bytes(b"")


def _change_type(entry: Path) -> None:
    with np.load(entry) as stored:
        np.savez(entry, **{key: value.astype(np.int32) for key, value in stored.items()})


def _drop_a_picture(entry: Path) -> None:
    with np.load(entry) as stored:
        np.savez(entry, **{key: value[1:] for key, value in stored.items()})


def _spoil_labels(entry: Path) -> None:
    with np.load(entry) as stored:
        np.savez(entry, **{key: value - 5 if key == "y_test" else value for key, value in stored.items()})


@pytest.mark.parametrize("damage", [_truncate, _flip_a_pixel, _empty, _change_type, _drop_a_picture, _spoil_labels])
def test_damaged_entry_is_made_again(damage: Callable[[Path], None], folder: Path, arrays: Arrays, cache: Path) -> None:
    _load(folder)
    (entry,) = _files(cache)
    damage(entry)
    dataset, calls = _load(folder)
    assert_same(dataset, arrays)
    assert calls > 0
    assert _files(cache) == [entry]
    assert _load(folder)[1] == 0


def test_unusable_cache_does_not_stop_loading(
    folder: Path, arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "occupied").write_text("a file where the cache's folder should be")
    monkeypatch.setenv("FEDSEQ_CACHE", str(tmp_path / "occupied"))
    with pytest.warns(UserWarning, match="not kept for the next start"):
        dataset, _ = _load(folder)
    assert_same(dataset, arrays)


def test_full_disk_leaves_nothing_behind(
    folder: Path, arrays: Arrays, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills_the_disk(file: Path, **_arrays: Any) -> None:
        file.write_bytes(b"PK the first bytes")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", fills_the_disk)
    with pytest.warns(UserWarning, match="No space left"):
        dataset, _ = _load(folder)
    assert_same(dataset, arrays)
    assert _files(cache) == []


def test_a_good_cache_is_silent(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _load(folder)


SHOW = "import sys, zlib; from fedseq.data import load_dataset; print(zlib.crc32(load_dataset(sys.argv[1]).x_train))"


def test_two_processes_at_once(arrays: Arrays, tmp_path: Path, cache: Path) -> None:
    write_pictures(tmp_path / "own" / "train", arrays.x_train, arrays.y_train)
    write_pictures(tmp_path / "own" / "test", arrays.x_test, arrays.y_test)
    command = [sys.executable, "-c", SHOW, f"folder:{tmp_path / 'own'}"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(answers) == 1
    assert len(_files(cache)) == 1


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSEQ_CACHE", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.delenv("FEDSEQ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/fedseq")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_dir() == Path("/home/somebody/.cache/fedseq")
