import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_labelled

from .builders import assert_damage_is_refused_or_harmless, encode, write_encoded, write_parquet

# Two pictures of two rows and three columns, in the order in which a picture is written: rows, columns, colours.
RED = np.array([[[255, 0, 0]] * 3, [[254, 1, 2]] * 3], np.uint8)
BLUE = np.array([[[0, 0, 255]] * 3, [[3, 4, 250]] * 3], np.uint8)
RED_FIRST = [[[255] * 3, [254] * 3], [[0] * 3, [1] * 3], [[0] * 3, [2] * 3]]  # colours, rows, columns
BLUE_FIRST = [[[0] * 3, [3] * 3], [[0] * 3, [4] * 3], [[255] * 3, [250] * 3]]
ANIMALS = ("ant", "bee", "cat")


def _folder(root: Path, **pictures: np.ndarray) -> str:
    for place, picture in pictures.items():
        (root / place).mkdir(parents=True)
        Image.fromarray(picture).save(root / place / "one.png")
    return f"folder:{root}"


def _parquet(file: Path, y: list[int], image: str = "image", label: str = "label") -> str:
    x = np.stack([RED if number % 2 == 0 else BLUE for number in range(len(y))]).transpose(0, 3, 1, 2)
    write_parquet(file, x, np.array(y), image, label)
    return f"parquet:{file}"


def _expect(found: np.ndarray, values: Any, dtype: type) -> None:
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)


def test_folder_of_the_server_names_the_classes(tmp_path: Path) -> None:
    found = load_labelled(_folder(tmp_path / "own", zebra=BLUE, ant=RED))
    _expect(found.x, [RED_FIRST, BLUE_FIRST], np.uint8)
    _expect(found.y, [0, 1], np.int64)
    assert found.class_names == ("ant", "zebra")


def test_folder_of_a_client_is_numbered_by_the_server_whose_order_counts(tmp_path: Path) -> None:
    source = _folder(tmp_path / "own", ant=RED, cat=BLUE)
    for names, expected in ((ANIMALS, [0, 2]), (("cat", "dog", "ant"), [2, 0])):
        for _ in range(2):  # decoded, then from the cache
            found = load_labelled(source, names)
            _expect(found.x, [RED_FIRST, BLUE_FIRST], np.uint8)
            _expect(found.y, expected, np.int64)
            assert found.class_names == names


def test_grey_folder_has_one_channel(tmp_path: Path) -> None:
    _expect(load_labelled(_folder(tmp_path / "own", ant=RED[:, :, 0])).x, [[RED_FIRST[0]]], np.uint8)


def test_unknown_class_folder_is_refused_with_the_nearest(tmp_path: Path) -> None:
    source = _folder(tmp_path / "own", ant=RED, Bees=BLUE)
    with pytest.raises(FedSeqError, match=r"own/Bees: unknown class 'Bees'. Did you mean 'bee'\? Valid: ant, bee, cat"):
        load_labelled(source, ANIMALS)


def test_folder_with_both_splits_is_explained(tmp_path: Path) -> None:
    _folder(tmp_path / "own" / "train", ant=RED)
    _folder(tmp_path / "own" / "test", ant=RED)
    for names in (None, ANIMALS):
        with pytest.raises(FedSeqError, match=r"both a training set and a test set.*folder:.*own/train"):
            load_labelled(f"folder:{tmp_path / 'own'}", names)
    assert len(load_labelled(f"folder:{tmp_path / 'own' / 'train'}", ANIMALS).y) == 1


TALL = encode(np.zeros((3, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (TALL, r"{bad}: 3x3 pixels, but .*{good} has 3x2; all pictures must have the same size"),
        (b"<html>", r"{bad}: not a readable picture"),
        (encode(BLUE.transpose(2, 0, 1))[:50], r"{bad}: not a readable picture"),
    ],
    ids=["tall", "web page", "cut"],
)
def test_wrong_pictures_are_named(contents: bytes, message: str, tmp_path: Path) -> None:
    source = _folder(tmp_path / "own", ant=RED, bee=BLUE)
    (tmp_path / "own" / "bee" / "odd.png").write_bytes(contents)
    with pytest.raises(FedSeqError, match=message.format(bad=r"bee/odd\.png", good=r"ant/one\.png")):
        load_labelled(source, ANIMALS)
    encoded = [encode(RED.transpose(2, 0, 1)), contents]
    write_encoded(tmp_path / "odd.parquet", encoded, np.array([0, 1]), "img", "label")
    with pytest.raises(FedSeqError, match=message.format(bad=r"odd\.parquet, row 1", good="row 0")):
        load_labelled(f"parquet:{tmp_path / 'odd.parquet'}", ANIMALS)


def test_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match="none does not exist"):
        load_labelled(f"folder:{tmp_path / 'none'}")
    (tmp_path / "own").mkdir()
    with pytest.raises(FedSeqError, match="own has no folders; pictures are expected in own/CLASS/"):
        load_labelled(f"folder:{tmp_path / 'own'}")
    (tmp_path / "own" / "ant").mkdir()
    with pytest.raises(FedSeqError, match="own/ant: no pictures"):
        load_labelled(f"folder:{tmp_path / 'own'}", ANIMALS)


@pytest.mark.parametrize(("image", "label"), [("img", "fine_label"), ("image", "label")])
def test_parquet_of_server_and_client(image: str, label: str, tmp_path: Path) -> None:
    source = _parquet(tmp_path / "one.parquet", [1, 0, 0], image, label)
    for names in (None, ANIMALS):  # the second is from the cache
        found = load_labelled(source, names)
        _expect(found.x, [RED_FIRST, BLUE_FIRST, RED_FIRST], np.uint8)
        _expect(found.y, [1, 0, 0], np.int64)
        assert found.class_names == (names or ("0", "1"))


def test_several_parquet_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    _parquet(tmp_path / "train-1.parquet", [1, 1], "img", "fine_label")
    _parquet(tmp_path / "train-0.parquet", [0])
    (tmp_path / "test-0.parquet").write_bytes(b"not asked for")
    found = load_labelled(f"parquet:{tmp_path / 'train-*.parquet'}")
    _expect(found.y, [0, 1, 1], np.int64)
    _expect(found.x, [RED_FIRST, RED_FIRST, BLUE_FIRST], np.uint8)
    for pattern in ("valid-*", "valid-**"):
        with pytest.raises(FedSeqError, match=r"valid-\*+: no file has such a name"):
            load_labelled(f"parquet:{tmp_path / pattern}")
    with pytest.raises(FedSeqError, match=r"none/\* cannot be read: .*No such file"):
        load_labelled(f"parquet:{tmp_path / 'none' / '*'}")


@pytest.mark.parametrize(
    ("y", "names", "message"),
    [
        ([0, -1], None, "label has the label -1"),
        ([0, 7], None, "label 7 among 2 examples"),
        ([0, 3], ANIMALS, "label 3, but the server names 3 classes"),
        ([], ANIMALS, "is empty: there are no rows"),
    ],
)
def test_wrong_labels_in_parquet(y: list[int], names: tuple[str, ...] | None, message: str, tmp_path: Path) -> None:
    if y:
        source = _parquet(tmp_path / "one.parquet", y)
    else:
        write_encoded(tmp_path / "one.parquet", [], np.array([], int), "img", "label")
        source = f"parquet:{tmp_path / 'one.parquet'}"
    with pytest.raises(FedSeqError, match=rf"one\.parquet.*{message}"):
        load_labelled(source, names)


@pytest.mark.parametrize(
    ("columns", "labels", "message"),
    [
        (["image", "kind"], [0, 1], "no column label or fine_label; it has image, kind"),
        (["photo", "label"], [0, 1], "no column img or image; it has photo, label"),
        (["image", "label"], ["ant", "bee"], "labels must be whole numbers"),
        (["image", "label"], [0, None], "labels must be whole numbers, all of them present"),
        (["label", "label"], [0, 1], "exists 2 times"),
    ],
)
def test_wrong_columns_in_parquet(columns: list[str], labels: list[Any], message: str, tmp_path: Path) -> None:
    pictures = pa.array([{"bytes": encode(RED.transpose(2, 0, 1))}] * 2)
    pq.write_table(pa.Table.from_arrays([pictures, pa.array(labels)], names=columns), tmp_path / "one.parquet")
    with pytest.raises(FedSeqError, match=rf"one\.parquet.*{message}"):
        load_labelled(f"parquet:{tmp_path / 'one.parquet'}")


def test_own_pictures_in_the_cache_are_not_for_others(tmp_path: Path, cache: Path) -> None:
    load_labelled(_folder(tmp_path / "own", ant=RED))
    load_labelled(_parquet(tmp_path / "one.parquet", [0]))
    entries = list((cache / "decoded").iterdir())
    assert [entry.stat().st_mode & 0o777 for entry in entries] == [0o600, 0o600]


def test_unforeseen_trouble_with_files_is_an_error_with_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    source = _folder(tmp_path / "own", ant=RED)
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(FedSeqError, match=r"own cannot be read: .*Permission denied"):
        load_labelled(source)


def test_client_starts_without_the_decoders(tmp_path: Path) -> None:
    """Neither the import nor a second look at the same pictures needs them."""
    sources = [_folder(tmp_path / "own", ant=RED), _parquet(tmp_path / "one.parquet", [0])]
    for source in sources:
        load_labelled(source)
    code = (
        "import sys, fedseq.data\n"
        f"for source in {sources!r}: fedseq.data.load_labelled(source)\n"
        "sys.exit(any(name in sys.modules for name in ('pyarrow', 'PIL', 'torch', 'sklearn')))"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stdout + asked.stderr


def test_damaged_parquet_is_refused_or_harmless(tmp_path: Path) -> None:
    """PNG has checksums, labels have none."""
    source = _parquet(tmp_path / "mine.parquet", [0, 1])
    assert_damage_is_refused_or_harmless(tmp_path / "mine.parquet", lambda: load_labelled(source).x, 23)
