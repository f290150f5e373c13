import subprocess
import sys

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import check_dataset_name, load_dataset
from fedseq.data.dataset import Arrays, check_against
from fedseq.options.datasets import CATALOG


@pytest.mark.parametrize("name", [*CATALOG, "npz:data.npz", "folder:pictures"])
def test_known_names_pass(name: str) -> None:
    check_dataset_name(name)


@pytest.mark.parametrize("name", ["cifar", "", "npz", "npz:", "folder:", "zip:x", "Digits"])
def test_unknown_names_list_the_valid_ones(name: str) -> None:
    with pytest.raises(FedSeqError) as caught:
        check_dataset_name(name)
    for valid in (*CATALOG, "npz:FILE", "folder:DIR"):
        assert valid in str(caught.value)


def test_nearest_name_is_offered() -> None:
    with pytest.raises(FedSeqError, match=r"unknown dataset 'cifar-100'\. Did you mean 'cifar100'\?"):
        load_dataset("cifar-100")


def test_class_names_are_distinct_and_as_many_as_published() -> None:
    published = {"digits": 10, "fashion-mnist": 10, "cifar10": 10, "cifar100": 100, "smartwatch": 7, "vowels": 9}
    assert {name: len(set(facts.class_names)) for name, facts in CATALOG.items()} == published


def test_digits_are_split_the_same_way_every_time() -> None:
    first, second = load_dataset("digits"), load_dataset("digits")
    arrays = Arrays(first.x_train, first.y_train, first.x_test, first.y_test)
    check_against(CATALOG["digits"], "digits", arrays)
    np.testing.assert_array_equal(np.bincount(first.y_test), np.full(10, 36))
    np.testing.assert_array_equal(first.x_test, second.x_test)


def test_digits_are_all_there_with_pixels_scaled_to_bytes() -> None:
    from sklearn.datasets import load_digits

    dataset = load_dataset("digits")
    both = np.concatenate([dataset.x_train, dataset.x_test])[:, 0]
    expected = {0: 0, 1: 16, 8: 128, 16: 255}  # 15.9375 and 127.5 are rounded
    for value, byte in expected.items():
        assert (both == byte).sum() == (load_digits().images == value).sum()
    assert both.mean() / 255 == pytest.approx(CATALOG["digits"].mean[0], abs=2e-3)


def test_digits_read_the_same_when_the_global_generator_is_seeded() -> None:
    np.random.seed(1)
    first = load_dataset("digits").y_train
    np.random.seed(2)
    np.testing.assert_array_equal(first, load_dataset("digits").y_train)


def test_reading_data_does_not_import_torch_or_the_optional_libraries() -> None:
    heavy = "{'torch', 'PIL', 'pyarrow', 'sklearn'}"
    code = f"import sys, fedseq.data, fedseq.data.download; print({heavy} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
