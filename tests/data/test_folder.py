import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset

from .builders import encode, write_pictures

Y_TRAIN, Y_TEST = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 2])


def _pixels(count: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, channels, 6, 5), dtype=np.uint8)


def _write(root: Path, channels: int = 3, suffix: str = "png") -> str:
    write_pictures(root / "train", _pixels(6, channels), Y_TRAIN, suffix)
    write_pictures(root / "test", _pixels(3, channels), Y_TEST, suffix)
    return f"folder:{root}"


@pytest.mark.parametrize("suffix", ["png", "bmp"])
def test_pixels_and_labels_come_back(suffix: str, tmp_path: Path) -> None:
    dataset = load_dataset(_write(tmp_path, suffix=suffix))
    np.testing.assert_array_equal(dataset.x_train, _pixels(6))
    np.testing.assert_array_equal(dataset.x_test, _pixels(3))
    np.testing.assert_array_equal(dataset.y_train, Y_TRAIN)
    np.testing.assert_array_equal(dataset.y_test, Y_TEST)
    assert dataset.class_names == ("class-0", "class-1", "class-2")
    assert dataset.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("suffix", ["jpg", "webp", "gif"])
def test_other_formats_are_read(suffix: str, tmp_path: Path) -> None:
    assert load_dataset(_write(tmp_path, suffix=suffix)).x_train.shape == (6, 3, 6, 5)


def test_greyscale_stays_greyscale_only_if_all_are(tmp_path: Path) -> None:
    name = _write(tmp_path, channels=1)
    grey = load_dataset(name)
    np.testing.assert_array_equal(grey.x_train, _pixels(6, 1))
    (tmp_path / "test" / "class-2" / "colour.png").write_bytes(encode(_pixels(1)[0]))
    np.testing.assert_array_equal(load_dataset(name).x_train, _pixels(6, 1).repeat(3, axis=1))


def test_hidden_and_foreign_files_are_ignored(tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "train" / "class-0" / ".hidden.png").write_bytes(b"junk")
    (tmp_path / "train" / "class-0" / "notes.txt").write_text("junk")
    (tmp_path / "train" / ".cache").mkdir()
    assert len(load_dataset(name).x_train) == 6


def test_class_without_test_pictures_is_allowed(tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "test" / "class-1" / "001.png").unlink()
    (tmp_path / "test" / "class-1").rmdir()
    np.testing.assert_array_equal(load_dataset(name).y_test, [0, 2])


def test_picture_of_another_size_is_named(tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "test" / "class-1" / "odd.png").write_bytes(encode(_pixels(1)[0][:, :4]))
    with pytest.raises(FedSeqError, match=r"test/class-1/odd\.png: 5x4 pixels, but .*000\.png has 5x6"):
        load_dataset(name)


@pytest.mark.parametrize("contents", [b"", b"<html>", encode(_pixels(1)[0])[:60]])
def test_unreadable_picture_is_named(contents: bytes, tmp_path: Path, cache: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "test" / "class-2" / "002.png").write_bytes(contents)
    with pytest.raises(FedSeqError, match=r"test/class-2/002\.png: not a readable picture"):
        load_dataset(name)
    assert not cache.exists()


def test_sixteen_bits_are_refused_rather_than_cut(tmp_path: Path) -> None:
    name = _write(tmp_path)
    Image.fromarray(np.full((6, 5), 40_000, np.uint16)).save(tmp_path / "train" / "class-0" / "deep.png")
    with pytest.raises(FedSeqError, match=r"deep\.png: .*more than 8 bits"):
        load_dataset(name)


@pytest.mark.parametrize("split", ["train", "test"])
def test_missing_split_is_named(split: str, tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / split).rename(tmp_path / "elsewhere")
    with pytest.raises(FedSeqError, match=f"{split} does not exist"):
        load_dataset(name)


def test_split_without_classes_is_named(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(FedSeqError, match="train has no folders"):
        load_dataset(f"folder:{tmp_path}")


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match="none does not exist"):
        load_dataset(f"folder:{tmp_path / 'none'}")


def test_test_class_that_is_not_trained_is_named(tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "test" / "class-2").rename(tmp_path / "test" / "other")
    with pytest.raises(FedSeqError, match="there is no class 'other' in train; it has class-0, class-1, class-2"):
        load_dataset(name)


def test_empty_class_is_named(tmp_path: Path) -> None:
    name = _write(tmp_path)
    (tmp_path / "train" / "empty").mkdir()
    with pytest.raises(FedSeqError, match="train/empty: no pictures"):
        load_dataset(name)


def test_without_pillow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _write(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(FedSeqError, match=r"needs pillow.*pip install '\.\[data\]'"):
        load_dataset(name)
