import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset, published
from fedseq.data.dataset import Arrays

from .builders import assert_same, idx_contents, random_arrays, shrink, write_idx

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    shrink(monkeypatch, "fashion-mnist", 30, 20)
    return random_arrays("fashion-mnist", 30, 20)


@pytest.fixture
def folder(arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "data"
    for stem, digest in write_idx(place, arrays).items():
        monkeypatch.setitem(published.IDX_SHA256, stem, digest)
    return place


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_real_files_are_the_published_ones() -> None:
    dataset = load_dataset("fashion-mnist")
    assert dataset.x_train.shape == (60_000, 1, 28, 28)
    assert dataset.x_test.shape == (10_000, 1, 28, 28)
    np.testing.assert_array_equal(np.bincount(dataset.y_train), np.full(10, 6000))
    assert dataset.class_names[dataset.y_train[0]] == "Ankle boot"
    share = np.bincount(dataset.x_train.ravel(), minlength=256) / dataset.x_train.size
    brightness = np.arange(256) / 255
    mean = (share * brightness).sum()
    assert dataset.mean[0] == pytest.approx(mean, abs=1e-4)
    assert dataset.std[0] == pytest.approx(np.sqrt((share * (brightness - mean) ** 2).sum()), abs=1e-4)


def test_zipped_files_give_back_the_pixels_put_in(folder: Path, arrays: Arrays) -> None:
    assert_same(load_dataset("fashion-mnist", folder), arrays)


def test_unzipped_files_do_as_well(folder: Path, arrays: Arrays, tmp_path: Path) -> None:
    write_idx(tmp_path / "plain", arrays, zipped=False)
    assert_same(load_dataset("fashion-mnist", tmp_path / "plain"), arrays)


def test_progress_is_told(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    load_dataset("fashion-mnist", folder, lambda done, total, what: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_missing_file_is_named(folder: Path) -> None:
    (folder / f"{LABELS}.gz").unlink()
    with pytest.raises(FedSeqError, match=rf"lacks {LABELS}\.gz\.\n.*fedseq data get fashion-mnist"):
        load_dataset("fashion-mnist", folder)


def _flip(contents: bytes) -> bytes:
    return contents[:-1] + bytes([contents[-1] ^ 1])


def _append(contents: bytes) -> bytes:
    return contents + b"\0"


def _shorten(contents: bytes) -> bytes:
    return contents[:-1]


def _change_magic(contents: bytes) -> bytes:
    return b"\0\0\x0d" + contents[3:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_flip, "not the published ones"),
        (_append, "more than"),
        (_shorten, "fewer than"),
        (_change_magic, r"not an IDX file of unsigned bytes with shape \[30, 28, 28\]"),
    ],
)
def test_wrong_contents_are_refused(damage: Callable[[bytes], bytes], message: str, folder: Path, cache: Path) -> None:
    file = folder / f"{IMAGES}.gz"
    file.write_bytes(gzip.compress(damage(gzip.decompress(file.read_bytes()))))
    with pytest.raises(FedSeqError, match=rf"{IMAGES}\.gz: .*{message}"):
        load_dataset("fashion-mnist", folder)
    assert not cache.exists()


def test_truncated_gzip_is_refused(folder: Path) -> None:
    file = folder / f"{IMAGES}.gz"
    os.truncate(file, file.stat().st_size - 20)
    with pytest.raises(FedSeqError, match=rf"{IMAGES}\.gz is damaged or incomplete"):
        load_dataset("fashion-mnist", folder)


def test_web_page_is_recognised(folder: Path) -> None:
    (folder / f"{IMAGES}.gz").write_text("<html>rate limit</html>")
    with pytest.raises(FedSeqError, match=rf"{IMAGES}\.gz: this is a web page"):
        load_dataset("fashion-mnist", folder)


def test_labels_out_of_range_are_refused_even_with_the_right_digest(
    folder: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = idx_contents(arrays.y_train + 1)
    monkeypatch.setitem(published.IDX_SHA256, LABELS, hashlib.sha256(contents).hexdigest())
    (folder / f"{LABELS}.gz").write_bytes(gzip.compress(contents))
    with pytest.raises(FedSeqError, match="labels run from 1 to 10, expected 0 to 9"):
        load_dataset("fashion-mnist", folder)
