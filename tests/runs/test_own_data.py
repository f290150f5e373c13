"""Clients in data that Python holds: the real Hugging Face objects, and torch data sets with a client function."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedseq
from fedseq.basics.errors import FedSeqError

OPTIONS: dict[str, Any] = {"rounds": 2, "engine": "serial", "grouping": "random", "lr": 0.1}
CLIENTS = [f"c{number % 6}" for number in range(60)]
LABELS = [number // 6 % 2 for number in range(60)]


def _values() -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(60, 3))
    return noise + 3 * np.array(LABELS)[:, None]


def test_a_torch_data_set_with_a_client_function(tmp_path: Path) -> None:
    data = TensorDataset(torch.tensor(_values(), dtype=torch.float32), torch.tensor(LABELS))
    run = fedseq.federate(
        lambda: nn.Linear(3, 2),
        lambda number: CLIENTS[number],
        data=data,
        folder=tmp_path / "a",
        eval_clients=9,
        **OPTIONS,
    )
    described = json.loads((run.folder / "clients.json").read_text())
    assert described["names"] == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert described["examples"] == [8] * 6  # of ten each, a fifth is held out
    assert len(run.metrics[-1]["client_accuracies"]) == 6
    listed = fedseq.federate(
        lambda: nn.Linear(3, 2), CLIENTS, data=data, folder=tmp_path / "b", eval_clients=9, **OPTIONS
    )
    assert (listed.folder / "metrics.jsonl").read_bytes() == (run.folder / "metrics.jsonl").read_bytes()


def test_a_hugging_face_table_and_one_with_arrays(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    values = _values()
    table = {"who": CLIENTS, "ill": ["yes" if label else "no" for label in LABELS]}
    numbers = datasets.Dataset.from_dict({**table, **{f"x{i}": values[:, i].tolist() for i in range(3)}})
    held_out = {"holdout_by": "clients", "holdout": 0.34, "label_column": "ill", **OPTIONS}
    run = fedseq.federate(nn_for(3), "who", data=numbers, folder=tmp_path / "a", **held_out)
    assert (
        json.loads((run.folder / "clients.json").read_text())["examples"] == [10] * 4
    )  # two of six are not trained on
    arrays = datasets.Dataset.from_dict({**table, "x": values.astype(np.float32).tolist()})
    again = fedseq.federate(nn_for(3), "who", data=arrays, folder=tmp_path / "b", **held_out)
    assert json.loads((again.folder / "clients.json").read_text())["label_counts"] == [[5, 5]] * 4


class nn_for:  # noqa: N801 - a factory
    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self) -> nn.Module:
        return nn.Linear(self.width, 2)


def test_hugging_face_pictures(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    pictures = [Image.fromarray(np.full((4, 4), 40 + 160 * label, np.uint8)) for label in LABELS]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"]), "who": datasets.Value("string")}
    )
    data = datasets.Dataset.from_dict({"image": pictures, "label": LABELS, "who": CLIENTS}, features=features)
    flat = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2))  # noqa: E731
    run = fedseq.federate(flat, "who", data=data, folder=tmp_path / "a", **OPTIONS)
    assert json.loads((run.folder / "clients.json").read_text())["names"][0] == "c0"


@pytest.mark.parametrize(
    ("data", "by", "options", "words"),
    [
        (TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])), [1, 2], {}, "2 entries for 4 examples"),
        (TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])), "who", {}, "the data has no columns"),
        (TensorDataset(torch.zeros(0, 3), torch.zeros(0).long()), int, {}, "the data set is an empty TensorDataset"),
        (TensorDataset(torch.zeros(4, 3)), [1, 1, 2, 2], {}, r"a pair \(input, target\) was expected"),
        (TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])), [1, 1, 2, 2], {"holdout_by": "x"}, "holdout_by"),
        (TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])), [1, 1, 2, None], {}, "example 4 has no client"),
    ],
)
def test_mistakes_get_one_sentence(data: Any, by: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        fedseq.federate(lambda: nn.Linear(3, 2), by, data=data, rounds=1, **options)


def test_evaluate_clients_needs_to_know_whose_the_test_examples_are() -> None:
    x, y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])
    with pytest.raises(FedSeqError, match="eval_clients needs test_clients"):
        fedseq.federate(lambda: nn.Linear(3, 2), [(x, y), (x, y)], (x, y), "fedavg", rounds=1, eval_clients=2)
    run = fedseq.federate(
        lambda: nn.Linear(3, 2), [(x, y), (x, y)], (x, y), "fedavg", rounds=1, eval_clients=2,
        test_clients=["a", "b", "b", "b"], engine="serial",
    )  # fmt: skip
    assert len(run.metrics[-1]["client_accuracies"]) == 2
