import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import check_labelled_name, load_labelled

from .builders import Trap, assert_damage_is_refused_or_harmless

ANIMALS = ("ant", "bee", "cat")


def _npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "mine.npz", **arrays)
    return f"npz:{folder / 'mine.npz'}"


def _expect(found: np.ndarray, values: Any, dtype: type) -> None:
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("suffix", ["", "_train", "_test"])
def test_npz_pictures(suffix: str, tmp_path: Path) -> None:
    arrays = {f"x{suffix}": np.array([[[1, 2]], [[3, 4]]], np.uint8), f"y{suffix}": np.array([1, 0], np.uint8)}
    found = load_labelled(_npz(tmp_path, **arrays, notes=np.ones(3)))
    _expect(found.x, [[[[1, 2]]], [[[3, 4]]]], np.uint8)
    _expect(found.y, [1, 0], np.int64)
    assert found.class_names == ("0", "1")


def test_npz_colour_pictures_are_turned_to_channels_first(tmp_path: Path) -> None:
    red_over_blue = np.array([[[[255, 1, 2]], [[3, 4, 250]]]], np.uint8)  # two rows, one column, three colours
    found = load_labelled(_npz(tmp_path, x=red_over_blue, y=[0]))
    _expect(found.x, [[[[255], [3]], [[1], [4]], [[2], [250]]]], np.uint8)


def test_npz_features_of_a_client_that_lacks_classes(tmp_path: Path) -> None:
    found = load_labelled(_npz(tmp_path, x=[[0.5, -2.0]], y=[2]), ANIMALS)
    _expect(found.x, [[0.5, -2.0]], np.float32)
    _expect(found.y, [2], np.int64)
    assert found.class_names == ANIMALS


def test_npz_x_and_y_come_before_other_pairs(tmp_path: Path) -> None:
    source = _npz(tmp_path, x=[[1.0]], y=[0], x_train=[[2.0]], y_train=[0], x_test=[[3.0]], y_test=[0])
    _expect(load_labelled(source).x, [[1.0]], np.float32)


ONE = {"x": np.ones((1, 2)), "y": np.zeros(1, int)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((1, 2))}, "no arrays x and y; it has x. Store the examples as x"),
        ({}, "no arrays x and y; it has no arrays"),
        ({"x_train": 0, "y_test": 0}, "no arrays x and y; it has x_train, y_test"),
        (
            {"x_train": 0, "y_train": 0, "x_test": 0, "y_test": 0},
            "both a training set and a test set; it has x_train, y_train, x_test, y_test",
        ),
        (ONE | {"y": np.zeros(2, int)}, r"y has 2 labels, but x has shape \[1, 2\]"),
        (ONE | {"y": np.zeros(1)}, "y must be a list of integers, not float64"),
        (ONE | {"y": np.array([-1])}, "y has the label -1"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "x is empty"),
        (ONE | {"x": np.array([[0, np.nan]])}, "x has values that are not finite"),
        (ONE | {"x": np.array([[0, 1e300]])}, "x has values that are not finite"),
        (ONE | {"x": np.ones((1, 2), int)}, "x is int64; pictures must be uint8"),
        (ONE | {"x": np.array([None])}, "cannot be read: Object arrays"),
        (ONE | {"y": np.array([3])}, "label 3, but the server names 3 classes. .*: 0 ant, 1 bee, 2 cat"),
        (ONE | {"y": np.array([2**64 - 1], np.uint64)}, "label 18446744073709551615, but"),
    ],
)
def test_wrong_arrays_are_explained(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = _npz(tmp_path, **arrays)
    with pytest.raises(FedSeqError, match=rf"mine\.npz.*{message}"):
        load_labelled(source, ANIMALS)


def test_senseless_label_of_the_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match=r"label 1000000000 among 1 examples"):
        load_labelled(_npz(tmp_path, x=[[1.0]], y=[10**9]))


def test_many_classes_are_not_all_listed(tmp_path: Path) -> None:
    source = _npz(tmp_path, x=[[1.0]], y=[100])
    with pytest.raises(FedSeqError, match=r": 0 c0, 1 c1, 2 c2, \.\.\., 99 c99\.$"):
        load_labelled(source, tuple(f"c{number}" for number in range(100)))


@pytest.mark.parametrize("in_the_zip", [True, False])
def test_pickles_are_not_run(in_the_zip: bool, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    source = _npz(tmp_path, x=np.array([Trap(trace)], dtype=object), y=[0])
    if not in_the_zip:
        (tmp_path / "mine.npz").write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(FedSeqError, match=r"mine\.npz"):
        load_labelled(source)
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_missing_files_web_pages_and_folders_are_refused(kind: str, tmp_path: Path) -> None:
    source = f"{kind}:{tmp_path / 'file'}"
    with pytest.raises(FedSeqError, match="file cannot be read: No such file"):
        load_labelled(source)
    (tmp_path / "file").write_text("\n<!doctype html>")
    with pytest.raises(FedSeqError, match="file: this is a web page"):
        load_labelled(source)
    with pytest.raises(FedSeqError, match="cannot be read: Is a directory"):
        load_labelled(f"{kind}:{tmp_path}")


@pytest.mark.parametrize("source", ["npz", "npz:", "cifar10", "csv:a.csv", "NPZ:a.npz", "", ":a"])
def test_other_forms_are_refused_cheaply(source: str) -> None:
    for function in (check_labelled_name, load_labelled):
        with pytest.raises(FedSeqError, match=r"unknown set of examples.* Valid: folder:DIR, npz:FILE, parquet:FILE"):
            function(source)


@pytest.mark.parametrize("source", ["npz:a", "folder:no such place", "parquet:a*"])
def test_forms_are_accepted_without_a_look_at_the_files(source: str) -> None:
    check_labelled_name(source)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _npz(tmp_path, x=[[1.0]], y=[0])
    assert load_labelled("npz:~/mine.npz").class_names == ("0",)
    with pytest.raises(FedSeqError, match="~nobody-of-this-name/x: no such user"):
        load_labelled("npz:~nobody-of-this-name/x")


def test_damaged_npz_is_refused_or_harmless(tmp_path: Path) -> None:
    """Harmless is a flipped date or comment of the zip archive."""
    source = _npz(tmp_path, x=np.array([[[1, 2]], [[3, 4]]], np.uint8), y=[0, 1])
    assert_damage_is_refused_or_harmless(tmp_path / "mine.npz", lambda: load_labelled(source).x, 7)
