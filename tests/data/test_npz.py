import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset

from .builders import Trap, assert_damage_is_refused_or_harmless


def _write(folder: Path, **changes: Any) -> str:
    """Six training and three test pictures, with some arrays changed, or left out if None."""
    arrays = {
        "x_train": np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4),
        "y_test": np.array([0, 1, 2]),
    }
    kept = {key: value for key, value in (arrays | changes).items() if value is not None}
    np.savez(folder / "own.npz", **kept)
    return f"npz:{folder / 'own.npz'}"


def test_pictures_without_channels_get_one(tmp_path: Path) -> None:
    dataset = load_dataset(_write(tmp_path, y_train=np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8)))
    assert dataset.shape == (1, 5, 4)
    assert dataset.x_train[1, 0, 0, 0] == 20
    assert dataset.y_train.dtype == np.int64
    assert (dataset.class_names, dataset.mean, dataset.std) == (("0", "1", "2"), (0.5,), (0.5,))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((8, 9, 3), (3, 8, 9)),
        ((8, 9, 1), (1, 8, 9)),
        ((3, 8, 4), (3, 8, 4)),
        ((4, 8, 9), (4, 8, 9)),
        ((2, 8, 9), (2, 8, 9)),
    ],
)
def test_channels_are_put_first(given: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, *given), dtype=np.uint8)
    dataset = load_dataset(_write(tmp_path, x_train=x, x_test=x[:3]))
    moved = x if given == expected else np.moveaxis(x, -1, 1)
    np.testing.assert_array_equal(dataset.x_train, moved)
    assert dataset.shape == expected
    assert len(dataset.mean) == expected[0]


def test_floating_point_features_are_kept(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 7))
    dataset = load_dataset(_write(tmp_path, x_train=x, x_test=x[:3]))
    np.testing.assert_array_equal(dataset.x_train, x.astype(np.float32))
    assert (dataset.x_train.dtype, dataset.shape, dataset.mean, dataset.std) == (np.float32, (7,), (), ())


def test_class_seen_only_in_the_test_set_counts(tmp_path: Path) -> None:
    assert load_dataset(_write(tmp_path, y_test=np.array([0, 1, 3]))).num_classes == 4


FLOATS = np.ones((6, 5, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "array 'y_test' is missing; it has x_train, y_train, x_test"),
        ({"y_train": np.zeros(5, int)}, r"y_train has 5 labels, but x_train has shape \[6, 5, 4\]"),
        ({"y_train": np.zeros(6)}, "y_train must be a list of integers, not float64"),
        ({"y_train": np.zeros((6, 1), int)}, r"y_train must be a list of integers, not int64 \[6, 1\]"),
        ({"y_test": np.array([0, 1, -1])}, "y_test has the label -1"),
        ({"y_test": np.array([0, 1, 10**9])}, "label 1000000000 among 9 examples"),
        ({"x_test": np.zeros((0, 5, 4), np.uint8), "y_test": np.zeros(0, int)}, "x_test is empty"),
        ({"x_train": np.uint8(1)}, r"x_train has shape \[\]"),
        ({"x_test": np.zeros((3, 5, 5), np.uint8)}, r"x_train holds uint8 \[1, 5, 4\] and x_test uint8 \[1, 5, 5\]"),
        ({"x_train": FLOATS}, "x_train holds float32"),
        (
            {"x_train": np.where(np.arange(4) == 2, np.nan, FLOATS), "x_test": FLOATS[:3]},
            "x_train has values that are not",
        ),
        ({"x_train": FLOATS, "x_test": FLOATS[:3] * 1e300}, "x_test has values that are not finite"),
        ({"x_train": np.zeros(6, np.uint8), "x_test": np.zeros(3, np.uint8)}, "uint8 with 1 dimensions"),
        ({"x_train": np.zeros((6, 5), int)}, "x_train is int64; pictures must be uint8"),
        ({"x_train": np.array([None] * 6)}, "cannot be read: Object arrays"),
    ],
)
def test_wrong_arrays_are_explained(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    name = _write(tmp_path, **changes)
    with pytest.raises(FedSeqError, match=rf"own\.npz.*{message}"):
        load_dataset(name)


@pytest.mark.parametrize("in_the_zip", [True, False])
def test_pickles_are_not_run(in_the_zip: bool, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    name = _write(tmp_path, x_train=np.array([Trap(trace)], dtype=object))
    if not in_the_zip:
        (tmp_path / "own.npz").write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(FedSeqError, match=r"own\.npz"):
        load_dataset(name)
    assert not trace.exists()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match=r"none\.npz cannot be read: No such file"):
        load_dataset(f"npz:{tmp_path / 'none.npz'}")


def test_lone_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", FLOATS)
    with pytest.raises(FedSeqError, match=r"one\.npy: not an \.npz file"):
        load_dataset(f"npz:{tmp_path / 'one.npy'}")


def test_web_page_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "own.npz").write_text("\n <!doctype html>")
    with pytest.raises(FedSeqError, match=r"own\.npz: this is a web page"):
        load_dataset(f"npz:{tmp_path / 'own.npz'}")


def test_every_truncation_and_flipped_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    """Harmless is a flipped date or comment of the zip archive."""
    name = _write(tmp_path)
    assert_damage_is_refused_or_harmless(tmp_path / "own.npz", lambda: load_dataset(name).x_train, 7)
