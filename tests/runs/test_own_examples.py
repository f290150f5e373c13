"""Clients' data as users have it: pairs, torch Datasets and Hugging Face datasets become the same two tensors."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import fedseq
from fedseq import FedSeqError
from fedseq.api.own_data import LabelledData, as_pair

datasets = pytest.importorskip("datasets")

X = torch.arange(60, dtype=torch.float32).reshape(20, 3) / 60
Y = torch.arange(20) % 2


class Pictures(Dataset[tuple[Image.Image, int]]):
    """As torchvision's data sets are without a transform: a PIL image and a number."""

    def __init__(self, pixels: np.ndarray):
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.pixels[index]), index


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def same(found: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> None:
    assert torch.equal(found[0], x)
    assert torch.equal(found[1], y)


def test_a_torch_dataset_is_read_as_its_tensors() -> None:
    same(as_pair(TensorDataset(X, Y), "client 0"), X, Y)
    same(as_pair(Subset(TensorDataset(X, Y), [4, 2]), "client 0"), X[[4, 2]], Y[[4, 2]])
    same(as_pair(DataLoader(TensorDataset(X, Y), batch_size=2, shuffle=True), "client 0"), X, Y)


@pytest.mark.parametrize("missing", [float("nan"), float("inf")])
def test_missing_numbers_are_told_by_whose_they_are(missing: float) -> None:
    """They would be an accuracy that means nothing, or the divergence of a run whose rate is not to blame."""
    holes = torch.tensor([[1.0, missing]])
    with pytest.raises(FedSeqError, match="inputs of the test set are not all finite numbers"):
        as_pair((holes, torch.zeros(1)), "the test set")
    with pytest.raises(FedSeqError, match="targets of client 3 are not all finite numbers"):
        as_pair((torch.zeros(1, 2), holes), "client 3")


def test_pictures_become_channels_first_from_0_to_1() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    x, y = as_pair(Pictures(colours), "client 0")
    same((x, y), torch.from_numpy(colours).permute(0, 3, 1, 2) / 255, torch.arange(4))
    grey, _ = as_pair(Pictures(colours[..., 0]), "client 0")
    assert torch.equal(grey, torch.from_numpy(colours[..., 0])[:, None] / 255)


def test_a_hugging_face_dataset_by_its_columns() -> None:
    table = datasets.Dataset.from_dict({"a": X[:, 0].tolist(), "label": Y.tolist(), "b": X[:, 1].tolist()})
    same(as_pair(table, "client 0"), X[:, :2], Y)  # all columns beside the label, in their order
    same(as_pair(table.with_format("torch"), "client 0"), X[:, :2], Y)
    vectors = datasets.Dataset.from_dict({"features": X.tolist(), "y": Y.tolist()})
    same(as_pair(vectors, "client 0"), X, Y)


def test_a_hugging_face_dataset_of_pictures() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4), dtype=np.uint8)
    rows = {"id": ["a", "b", "c"], "image": [Image.fromarray(one) for one in pixels], "label": [0, 1, 0]}
    features = datasets.Features(
        {"id": datasets.Value("string"), "image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    same(
        as_pair(datasets.Dataset.from_dict(rows, features), "client 0"),
        torch.from_numpy(pixels)[:, None] / 255,
        torch.tensor([0, 1, 0]),
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X, Y, Y), "client 7 has 3 parts"),
        (Endless(), "client 7 is of type Endless, without a length"),
        (Subset(TensorDataset(X, Y), []), "client 7 is an empty Subset"),
        (TensorDataset(X), "an example of client 7 is of type tuple; a pair"),
        (datasets.Dataset.from_dict({"a": [1.0], "b": [2]}), "columns a, b, of which none is named label"),
        (datasets.Dataset.from_dict({"label": [1]}), "no column beside label"),
        (datasets.Dataset.from_dict({"text": ["hello"], "label": [1]}), "column text of client 7 holds str"),
        (datasets.Dataset.from_dict({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}), r"shape \[1\] and \[2\]"),
    ],
)
def test_what_cannot_be_examples_is_refused(data: LabelledData, words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        as_pair(data, "client 7")


def test_federate_takes_them_all_with_the_same_result(tmp_path: Path) -> None:
    parts = [(X[:10], Y[:10]), (X[10:], Y[10:])]
    tables = [datasets.Dataset.from_dict({"x": x.tolist(), "y": y.tolist()}) for x, y in parts]
    forms: dict[str, list[LabelledData]] = {
        "pairs": [*parts], "torch": [TensorDataset(*part) for part in parts], "tables": tables
    }  # fmt: skip
    found = {
        name: fedseq.federate(
            lambda: nn.Linear(3, 2), clients, clients[0], "fedavg", folder=tmp_path / name, rounds=2, engine="serial"
        )
        for name, clients in forms.items()
    }
    assert found["torch"].metrics == found["tables"].metrics == found["pairs"].metrics
