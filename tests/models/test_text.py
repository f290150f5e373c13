"""Text: integers go through data, training and evaluation as they are."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import fedseq
from fedseq.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "next_character.py"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("next_character", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_windows_are_followed_by_the_next_character() -> None:
    """'abcde' in pieces of three with step one: abc -> d, bcd -> e; what is not in the alphabet is left out."""
    x, y = example().windows("aBc\u2014de", length=3, step=1)
    assert x.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert y.tolist() == [3, 4]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedseq"])
def test_the_example_learns_which_characters_are_frequent(algorithm: str, tmp_path: Path) -> None:
    """A fresh model guesses one of 57 characters at random, with a loss of log(57) = 4.04."""
    module = example()
    run = module.train(algorithm, 2, count=3, longest=900, folder=tmp_path / "run", engine="serial", fraction=1.0)
    assert len(module.ALPHABET) == len(set(module.ALPHABET)) == 57
    assert run.metrics[-1]["loss"] < 3.7
    assert run.weights()["embedding.weight"].dtype == torch.float32


def test_text_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """uint8 [n, length] is text; character 6 is among the inputs alone, and still one of seven that may come next."""
    x, y = np.arange(60, dtype=np.uint8).reshape(20, 3) % 6, np.arange(20) % 6
    x[0, 0] = 6
    np.savez("text.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.save("new.npy", x[:2])
    common = ["run", "--dataset", "npz:text.npz", "--algorithm", "fedavg", "--num-clients", "2", "--rounds", "1"]
    assert main([*common, "--engine", "serial", "--out", "run"]) == 0
    run = fedseq.read_run(tmp_path / "run")
    assert run.config.model == "gru"
    assert run.weights()["fc.weight"].shape == (7, 128)
    assert main(["predict", "run", "new.npy"]) == 0
    np.save("foreign.npy", np.full((2, 3), 7, dtype=np.uint8))
    np.savez("foreign.npz", x=np.full((2, 3), 7, dtype=np.uint8), y=y[:2])
    for words in (["predict", "run", "foreign.npy"], ["evaluate", "run", "--data", "npz:foreign.npz"]):
        assert main(words) == 2
        assert "symbols that the model has no entry for" in capsys.readouterr().err
    assert main([*common, "--model", "mlp", "--out", "other"]) == 2
    assert "model 'mlp' does not fit the data, which is text. Use --model gru." in capsys.readouterr().err
