"""Fine-tuning: only what is trained changes, is sent and is stored."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.models.adapters import LowRank, trained_part
from fedseq.options.resolve import resolve
from fedseq.runs.reading import Run

OPTIONS: dict[str, Any] = {
    "dataset": "digits", "algorithm": "fedavg", "num_clients": 10, "fraction": 0.5, "model": "mlp", "rounds": 1,
    "engine": "serial",
}  # fmt: skip
# mlp on 8x8 pictures in 10 classes: 64 -> 128 -> 64 -> 10. The head has 64 * 10 + 10 numbers, and additions of rank 2
# have 2 * (64 + 128) and 2 * (128 + 64).
HEAD, LORA = 650, 650 + 384 + 384


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fedseq.run(OPTIONS, tmp_path_factory.mktemp("all") / "run", rounds=2)


@pytest.mark.parametrize(("part", "trained"), [("head", HEAD), ("lora:2", LORA)])
@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_only_what_is_trained_is_sent_and_stored(
    before: Run, tmp_path: Path, part: str, trained: int, engine: str
) -> None:
    start = str(before.folder / "weights.safetensors")
    run = fedseq.run(OPTIONS, tmp_path / "run", trainable=part, init_weights=start, rounds=2, engine=engine)
    for record in run.metrics:
        hops = record["client_updates"]
        assert hops == 5
        assert record["bytes_down"] == record["bytes_up"] == 4 * trained * hops
    (state,) = (tmp_path / "run" / "checkpoints").glob("000002.safetensors")
    assert sum(tensor.numel() for tensor in load_file(state).values()) == trained
    old, new = before.weights(), run.weights()
    assert old.keys() == new.keys()  # what is saved is a model like any other
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == {"fc3.bias", "fc3.weight"} | ({"fc1.weight", "fc2.weight"} if part == "lora:2" else set())
    for name in changed - {"fc3.bias", "fc3.weight"}:
        assert torch.linalg.matrix_rank(new[name] - old[name], rtol=1e-3) == 2
    assert fedseq.load_model(run.folder)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_what_is_adapted_computes_at_first_what_it_did_before(before: Run, tmp_path: Path) -> None:
    start = str(before.folder / "weights.safetensors")
    run = fedseq.run(OPTIONS, tmp_path / "run", trainable="lora:4", init_weights=start, lr=1e-30, weight_decay=0.0)
    assert run.metrics[0]["accuracy"] == before.metrics[-1]["accuracy"]


def test_the_addition_is_the_product_of_its_factors() -> None:
    torch.manual_seed(0)
    layer = LowRank(nn.Linear(5, 3), 2)
    layer.up.data.normal_()
    x = torch.randn(4, 5)
    assert torch.allclose(layer(x), x @ (layer.weight + layer.up @ layer.down).T + layer.bias, atol=1e-6)


def test_layers_inside_of_others_are_adapted_and_the_last_one_is_trained_as_it_is() -> None:
    def nested() -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 2))

    module = trained_part(nested, "lora:1")()
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    assert trained == ["0.0.down", "0.0.up", "1.weight", "1.bias"]


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(FedSeqError, match=r"unknown part to train 'lora:0'. Valid: all, head, lora:RANK"):
        resolve({"trainable": "lora:0"})
    with pytest.raises(FedSeqError, match=r"2 or more fully connected layers .* Linear has 1\. Use --trainable head"):
        trained_part(lambda: nn.Linear(2, 2), "lora:1")()
    with pytest.raises(FedSeqError, match=r"Conv2d has 0\. Use --trainable all"):
        trained_part(lambda: nn.Conv2d(1, 1, 1), "head")()
