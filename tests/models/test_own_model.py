"""A model of one's own: what it is called with, and what is said where it does not fit."""

import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main

MODULE = """
import torch
from torch import nn

def flat(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

class Both(nn.Sequential):
    def __init__(self, shape, num_classes):
        assert shape == (1, 8, 8) and num_classes == 10
        super().__init__(*flat(num_classes))

class OtherNames(nn.Sequential):
    def __init__(self, size, outputs):
        assert size == (1, 8, 8) and outputs == 10
        super().__init__(*flat(outputs))

class Classes(nn.Sequential):
    def __init__(self, width=3, num_classes=2):
        assert width == 3
        super().__init__(*flat(num_classes))

def one(outputs):
    return flat(outputs)

def none():
    return flat(10)

def three(a, b, c):
    return flat(10)

def wide():
    return flat(5)

def flower(num_classes):
    return nn.Linear(63, num_classes)

def unready(num_classes):
    raise KeyError("no weights for 10 classes")

def text(num_classes):
    return "a model"

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = flat(10)

    def forward(self, x):
        return self.inner(x), x
"""


@pytest.fixture(autouse=True)
def my_models(tmp_path, monkeypatch):
    (tmp_path / "my_edge_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def go(name, *more):
    command = ["run", "--dataset", "digits", "--algorithm", "fedavg", "--rounds", "1", "--num-clients", "10"]
    return main([*command, "--engine", "serial", "--model", f"my_edge_models:{name}", "--out", "out", *more])


@pytest.mark.parametrize("name", ["Both", "OtherNames", "Classes", "one", "none"])
def test_a_model_gets_what_it_asks_for(name, tmp_path):
    assert go(name) == 0
    assert fedseq.read_run(tmp_path / "out").finished


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wide", "'my_edge_models:wide' gives [1, 5] for an input of [1, 1, 8, 8] of float32; [1, 10] was expected"),
        ("Pair", "gives tuple for an input of [1, 1, 8, 8] of float32; [1, 10] was expected"),
        ("flower", "cannot take an input of [1, 1, 8, 8] of float32: it raises RuntimeError: mat1 and mat2"),
        ("three", "takes (a, b, c), and is called with (shape, num_classes), (num_classes) or no arguments."),
        ("unready", "with (num_classes=10) it raises KeyError: 'no weights for 10 classes'."),
        ("text", "gives str, not a torch.nn.Module."),
    ],
)
def test_a_model_that_does_not_fit_is_told_before_there_is_a_folder(name, words, tmp_path, capsys):
    assert go(name) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert words in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_the_contract_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "called with (shape, num_classes), with (num_classes) or without arguments" in " ".join(
        capsys.readouterr().out.split()
    )


class Features(nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(shape[0], num_classes)

    def forward(self, x):
        return self.layer(x)


def test_federate_calls_a_class_as_it_asks(tmp_path):
    data = [(torch.randn(8, 5), torch.arange(8) % 3)] * 4
    options = {"rounds": 1, "engine": "serial", "folder": tmp_path / "run"}
    run = fedseq.federate(Features, data, data[0], "fedavg", **options)
    assert run.weights()["layer.weight"].shape == (3, 5)


def test_federate_says_what_a_model_raises(tmp_path):
    def broken():
        raise ZeroDivisionError("one half")

    data = [(torch.randn(8, 5), torch.arange(8) % 3)] * 4
    with pytest.raises(FedSeqError, match=r"cannot be built: with \(\) it raises ZeroDivisionError: one half"):
        fedseq.federate(broken, data, data[0], "fedavg", rounds=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
