import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset, published
from fedseq.data.dataset import Arrays

from .builders import (
    CIFAR_FOLDERS,
    CIFAR_LABELS,
    Trap,
    assert_same,
    cifar_batches,
    encode,
    expect_archive,
    small_cifar,
    write_archive,
    write_batches,
    write_encoded,
    write_parquet,
)

Place = Callable[[pytest.MonkeyPatch, Path, str, Arrays], Path]  # puts the data in a folder and says what to load from


def _archive(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    expect_archive(monkeypatch, name, write_archive(folder, name, cifar_batches(monkeypatch, name, arrays)))
    return folder


def _extracted(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    write_batches(folder / CIFAR_FOLDERS[name], cifar_batches(monkeypatch, name, arrays))
    return folder


def _the_extracted_folder_itself(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    return write_batches(folder / CIFAR_FOLDERS[name], cifar_batches(monkeypatch, name, arrays))


def _parquet(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    write_parquet(folder / "train.parquet", arrays.x_train, arrays.y_train, "img", CIFAR_LABELS[name][1], "WEBP")
    write_parquet(folder / "test.parquet", arrays.x_test, arrays.y_test, "img", CIFAR_LABELS[name][1], "WEBP")
    return folder


def _sharded_parquet(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    place, label = folder / "plain_text", CIFAR_LABELS[name][1]
    halves = zip(np.split(arrays.x_train, 2), np.split(arrays.y_train, 2), strict=True)
    for number, (x, y) in enumerate(halves):
        write_parquet(place / f"train-0000{number}-of-00002.parquet", x, y, "image", label)
    write_parquet(place / "test-00000-of-00001.parquet", arrays.x_test, arrays.y_test, "image", label)
    return folder


def _parquet_below_the_data_set_name(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, arrays: Arrays) -> Path:
    _parquet(monkeypatch, folder / name, name, arrays)
    return folder


PLACES: tuple[Place, ...] = (
    _archive,
    _extracted,
    _the_extracted_folder_itself,
    _parquet,
    _sharded_parquet,
    _parquet_below_the_data_set_name,
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_every_layout_gives_back_the_pixels_put_in(
    name: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_cifar(monkeypatch, name)
    dataset = load_dataset(name, place(monkeypatch, tmp_path / "data", name, arrays))
    assert_same(dataset, arrays)
    assert dataset.shape == (3, 32, 32)
    assert dataset.num_classes == len(set(dataset.class_names)) == (10 if name == "cifar10" else 100)
    assert dataset.x_train.flags.writeable  # torch complains about arrays that are not
    assert dataset.x_test.flags.writeable


def test_data_is_found_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    _extracted(monkeypatch, tmp_path / "all" / "cifar10", "cifar10", arrays)
    monkeypatch.setenv("FEDSEQ_DATA", str(tmp_path / "all"))
    assert_same(load_dataset("cifar10"), arrays)


def test_half_an_extraction_does_not_hide_whole_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    _parquet(monkeypatch, tmp_path, "cifar10", arrays)
    write_batches(tmp_path / "cifar-10-batches-py", {"data_batch_1": b"never read"})
    assert_same(load_dataset("cifar10", tmp_path), arrays)


def test_folder_of_the_other_data_set_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _parquet(monkeypatch, tmp_path / "cifar100", "cifar100", small_cifar(monkeypatch, "cifar100"))
    with pytest.raises(FedSeqError, match="no cifar10 data"):
        load_dataset("cifar10", tmp_path)


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError) as caught:
        load_dataset("cifar10", tmp_path)
    for part in (
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "`fedseq data get cifar10`",
        "--data-dir",
    ):
        assert part in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match=r"nowhere does not exist.*--data-dir"):
        load_dataset("cifar10", tmp_path / "nowhere")


def test_missing_batch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _extracted(monkeypatch, tmp_path, "cifar10", small_cifar(monkeypatch, "cifar10"))
    (folder / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(FedSeqError, match="lacks data_batch_3"):
        load_dataset("cifar10", folder)


def test_missing_test_parquet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _parquet(monkeypatch, tmp_path, "cifar10", small_cifar(monkeypatch, "cifar10"))
    (folder / "test.parquet").unlink()
    with pytest.raises(FedSeqError, match=r"lacks test\.parquet"):
        load_dataset("cifar10", folder)


@pytest.mark.parametrize("packed", [False, True], ids=["extracted", "archive"])
def test_a_pickle_without_the_published_digest_is_not_opened(
    packed: bool, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    batches = cifar_batches(monkeypatch, "cifar10", small_cifar(monkeypatch, "cifar10"))
    batches["data_batch_4"] = pickle.dumps({"data": Trap(trace)}, 2)
    if packed:
        write_archive(tmp_path, "cifar10", batches)
    else:
        write_batches(tmp_path, batches)
    with pytest.raises(FedSeqError, match=r"data_batch_4 is not the published batch.* npz:FILE or parquet:FILE"):
        load_dataset("cifar10", tmp_path)
    assert not trace.exists()
    assert not cache.exists()
    pickle.loads(batches["data_batch_4"])
    assert trace.exists()  # the attack is real


def test_the_published_digests_are_those_that_torchvision_knows_too() -> None:
    """Of which one cannot be derived here, as the files are not; so that none is changed by accident."""
    digests = ":".join(digest for batches in published.CIFAR_MD5.values() for digest in batches.values())
    assert hashlib.sha256(digests.encode()).hexdigest()[:16] == "1bcaaa87e953d397"


def test_truncated_archive_is_refused_even_if_its_digest_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(
        tmp_path, "cifar10", cifar_batches(monkeypatch, "cifar10", small_cifar(monkeypatch, "cifar10"))
    )
    os.truncate(archive, archive.stat().st_size // 2)
    expect_archive(monkeypatch, "cifar10", archive)
    with pytest.raises(FedSeqError, match=r"cifar-10-python\.tar\.gz is damaged or incomplete"):
        load_dataset("cifar10", tmp_path)


def test_archive_without_a_batch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cifar_batches(monkeypatch, "cifar10", small_cifar(monkeypatch, "cifar10"))
    del batches["data_batch_2"]
    expect_archive(monkeypatch, "cifar10", write_archive(tmp_path, "cifar10", batches))
    with pytest.raises(FedSeqError, match="no cifar-10-batches-py/data_batch_2"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("file", ["cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "train.parquet"])
def test_web_page_instead_of_data_is_recognised(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    place = {"gz": _archive, "parquet": _parquet}.get(file.rpartition(".")[2], _extracted)
    place(monkeypatch, tmp_path, "cifar10", arrays)
    (tmp_path / file).write_bytes(b"\r\n<!DOCTYPE html><html>404</html>")
    with pytest.raises(
        FedSeqError, match=f"{Path(file).name}: this is a web page, not data; the download probably failed"
    ):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_truncated_parquet_is_named(keep: float, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _parquet(monkeypatch, tmp_path, "cifar10", small_cifar(monkeypatch, "cifar10"))
    file = tmp_path / "test.parquet"
    os.truncate(file, int(file.stat().st_size * keep))
    with pytest.raises(FedSeqError, match=r"test\.parquet is damaged or no parquet file"):
        load_dataset("cifar10", tmp_path)
    assert not cache.exists()


def test_unreadable_picture_in_parquet_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    _parquet(monkeypatch, tmp_path, "cifar10", arrays)
    pictures = [encode(picture) for picture in arrays.x_test[:-1]]
    write_encoded(tmp_path / "test.parquet", [*pictures, b"not a picture"], arrays.y_test, "img", "label")
    with pytest.raises(FedSeqError, match=r"test\.parquet, row 19: not a readable picture"):
        load_dataset("cifar10", tmp_path)
    assert not cache.exists()


def test_a_folder_of_cifar10_is_not_decoded_as_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have 60,000 pictures and a column of labels. The pictures here are none: nobody looks at them."""
    arrays = small_cifar(monkeypatch, "cifar100")
    for split, y in (("train", arrays.y_train), ("test", arrays.y_test)):
        write_encoded(tmp_path / f"{split}.parquet", [b"not a picture"] * len(y), y % 10, "img", "label")
    with pytest.raises(FedSeqError, match="training set: no picture has label 10; all 100 classes must be present"):
        load_dataset("cifar100", tmp_path)


def test_picture_of_another_size_in_parquet_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    _parquet(monkeypatch, tmp_path, "cifar10", arrays)
    write_parquet(tmp_path / "train.parquet", arrays.x_train[:, :, :16], arrays.y_train, "img", "label")
    with pytest.raises(FedSeqError, match=r"train\.parquet, row 0: 32x16 pixels, expected 32x32"):
        load_dataset("cifar10", tmp_path)


def test_parquet_with_other_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    _parquet(monkeypatch, tmp_path, "cifar10", arrays)
    write_parquet(tmp_path / "train.parquet", arrays.x_train, arrays.y_train, "img", "fine_label")
    with pytest.raises(FedSeqError, match=r"train\.parquet: no column label; it has img, fine_label"):
        load_dataset("cifar10", tmp_path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _parquet(monkeypatch, tmp_path, "cifar10", small_cifar(monkeypatch, "cifar10"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FedSeqError, match=r"needs pyarrow.*pip install '\.\[data\]'"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("place", [_extracted, _parquet])
def test_wrong_count_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    short = arrays._replace(x_test=arrays.x_test[:-1], y_test=arrays.y_test[:-1])
    place(monkeypatch, tmp_path, "cifar10", short)
    with pytest.raises(FedSeqError, match=r"19.*expected.*20"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("place", [_extracted, _parquet])
def test_absent_class_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    place(monkeypatch, tmp_path, "cifar10", arrays._replace(y_train=np.where(arrays.y_train == 7, 1, arrays.y_train)))
    with pytest.raises(FedSeqError, match="training set: no picture has label 7"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(("place", "message"), [(_extracted, "run from 0 to 10"), (_parquet, "run from 0 to 10")])
def test_label_out_of_range_is_refused(
    place: Place, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_cifar(monkeypatch, "cifar10")
    place(monkeypatch, tmp_path, "cifar10", arrays._replace(y_train=np.where(arrays.y_train == 7, 10, arrays.y_train)))
    with pytest.raises(FedSeqError, match=message):
        load_dataset("cifar10", tmp_path)
