"""Parameters with requires_grad=False are not trained, decayed, sent or averaged, and are the same everywhere."""

import numpy as np
import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError

CLASSES, FEATURES, HIDDEN = 3, 5, 4


class Backbone(nn.Module):
    """A frozen layer and a trained one."""

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.body = nn.Linear(FEATURES, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)
        self.body.requires_grad_(False).weight.mul_(scale)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Restless(Backbone):
    """Its frozen layer is another one each time it is built, by randomness that torch's seed does not reach."""

    def __init__(self):
        super().__init__()
        self.body.weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(HIDDEN, FEATURES))))


def clients():
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.normal(size=(4, 30, FEATURES)).astype(np.float32))
    return list(zip(x, torch.from_numpy(rng.integers(0, CLASSES, (4, 30))), strict=True))


def train(model, folder, algorithm="fedavg", **options):
    data = clients()
    base = {"rounds": 2, "lr": 0.1, "weight_decay": 0.1, "fraction": 1.0, "engine": "serial"}
    return fedseq.federate(model, data, data[0], algorithm, folder=folder, **(base | options))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "feddyn"])
def test_frozen_parameters_stay_and_do_not_travel(tmp_path, algorithm):
    first = train(Backbone, tmp_path / "one", algorithm, rounds=1).weights()
    run = train(Backbone, tmp_path / "three", algorithm, rounds=3)
    later = run.weights()
    assert set(later) == {"body.weight", "body.bias", "head.weight", "head.bias"}  # the whole model
    assert torch.equal(first["body.weight"], later["body.weight"])
    assert torch.equal(first["body.bias"], later["body.bias"])
    assert not torch.equal(first["head.weight"], later["head.weight"])
    if algorithm == "fedavg":  # four clients are sent the head, in floats of four bytes
        assert run.metrics[0]["bytes_down"] == run.metrics[0]["bytes_up"] == 4 * 4 * (HIDDEN * CLASSES + CLASSES)


def test_the_head_is_trained_as_if_it_stood_behind_the_frozen_layer(tmp_path):
    """The same head alone, on what the frozen layer makes of the data, gives the same numbers."""
    whole = train(Backbone, tmp_path / "whole").weights()
    body = nn.Linear(FEATURES, HIDDEN)
    body.load_state_dict({"weight": whole["body.weight"], "bias": whole["body.bias"]})
    with torch.no_grad():
        data = [(torch.relu(body(x)), y) for x, y in clients()]
    start = train(Backbone, tmp_path / "start", lr=1e-30, weight_decay=0.0).weights()

    def head():
        made = nn.Linear(HIDDEN, CLASSES)
        made.load_state_dict({"weight": start["head.weight"], "bias": start["head.bias"]})
        return made

    options = {"rounds": 2, "lr": 0.1, "weight_decay": 0.1, "fraction": 1.0, "engine": "serial"}
    alone = fedseq.federate(head, data, data[0], "fedavg", folder=tmp_path / "alone", **options).weights()
    assert torch.allclose(alone["weight"], whole["head.weight"], atol=1e-6)


def test_every_process_has_the_same_frozen_parameters_whatever_the_factory_draws(tmp_path):
    folder = tmp_path / "run"
    run = train(Restless, folder, engine="processes", workers=2)
    body = nn.Linear(FEATURES, HIDDEN)
    tensors = run.weights()
    body.load_state_dict({"weight": tensors["body.weight"], "bias": tensors["body.bias"]})
    data = clients()
    with torch.no_grad():
        scores = torch.relu(body(data[0][0])) @ tensors["head.weight"].T + tensors["head.bias"]
    # Workers evaluated with the parameters that the file holds.
    assert run.metrics[-1]["accuracy"] == pytest.approx((scores.argmax(1) == data[0][1]).float().mean().item())


def test_serial_and_processes_give_the_same_bytes(tmp_path):
    runs = [train(Backbone, tmp_path / engine, engine=engine) for engine in ("serial", "processes")]
    first, second = ((run.folder / "weights.safetensors").read_bytes() for run in runs)
    assert first == second


def test_a_run_is_not_continued_with_other_frozen_parameters(tmp_path):
    train(Backbone, tmp_path / "run", rounds=1)
    with pytest.raises(FedSeqError, match="other frozen parameters"):
        train(lambda: Backbone(scale=2.0), tmp_path / "run", rounds=2)


def test_frozen_parameters_come_from_the_given_weights(tmp_path):
    earlier = train(lambda: Backbone(scale=3.0), tmp_path / "earlier")
    start = str(earlier.folder / "weights.safetensors")
    later = train(Backbone, tmp_path / "later", init_weights=start, engine="processes", workers=2)
    assert torch.equal(later.weights()["body.weight"], earlier.weights()["body.weight"])


def test_a_model_that_is_frozen_altogether_is_refused(tmp_path):
    with pytest.raises(FedSeqError, match="no parameters to train: requires_grad is False for all it has"):
        train(lambda: nn.Linear(FEATURES, CLASSES).requires_grad_(False), tmp_path / "run")
    assert not (tmp_path / "run").exists()
