"""The page on writing an algorithm: it shows the example as it is, and the example does what the page says."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedseq
from fedseq.algorithms import fedseqinter, scaffold
from fedseq.algorithms.server import fedavgm

from .toys import final_memory, final_state, final_weights, half_square, line, points

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_algorithm.py"
CLIENTS = [points((1.0, 1.2), (-0.5, 0.4)), points((-1.2, 0.9)), points((0.3, -1.0), (1.1, -0.6), (-0.9, 0.7))]


def test_the_page_shows_the_file():
    assert f"```python\n{EXAMPLE.read_text()}```\n" in (ROOT / "docs" / "own-algorithm.md").read_text()


def test_the_algorithm_takes_at_most_30_lines():
    functions = [node for node in ast.parse(EXAMPLE.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert sum((node.end_lineno or 0) - node.lineno + 1 for node in functions) <= 30


@pytest.mark.slow
def test_the_file_runs(tmp_path):
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not done.stderr
    lines = done.stdout.splitlines()
    assert [text.split(":")[0] for text in lines] == ["fedavg", "smoothed", "fedseq+smoothed"]
    accuracies = [float(text.split(":")[1].rstrip("%")) for text in lines]
    assert min(accuracies[1:]) > accuracies[0] > 30


@pytest.mark.parametrize("wrap", [lambda inner: inner, fedseqinter, fedavgm])
def test_without_smoothing_it_is_scaffold(tmp_path, wrap):
    smoothed = runpy.run_path(str(EXAMPLE))["smoothed"]
    options = {"loss": half_square, "rounds": 4, "fraction": 0.7, "engine": "serial"}

    def weights(algorithm) -> np.ndarray:
        groups = [(0, 2), (1,)] if algorithm.superclients else None
        folder = tmp_path / algorithm.name
        return final_weights(
            fedseq.federate(line, CLIENTS, CLIENTS[0], algorithm, groups=groups, folder=folder, **options)
        )

    assert weights(wrap(smoothed(keep=0.0))) == pytest.approx(weights(wrap(scaffold(2))), abs=1e-6)
    own = tmp_path / wrap(smoothed()).name
    assert np.abs(final_state(own)["c"]).max() > 0
    assert all("c" in kept for kept in final_memory(own).values())


def returned(gradient, hop):
    return gradient + 1


def a_number(hop):
    return {"sum": 1.0}, {}


def alone(hop):
    return {}


@pytest.mark.parametrize(("parts", "words"), [
    ({"correct": returned}, "correct of algorithm 'mine' returns something. Let it change the gradient"),
    ({"finish": a_number}, "finish of algorithm 'mine' returns 'sum' that is no tensor"),
    ({"finish": alone}, "finish of algorithm 'mine' returns dict. It returns two dicts of tensors"),
])  # fmt: skip
def test_a_function_that_returns_what_it_should_not_is_named(tmp_path, parts, words):
    mine = fedseq.Algorithm("mine", **parts)
    with pytest.raises(fedseq.FedSeqError, match=words):
        fedseq.federate(
            line, CLIENTS, CLIENTS[0], mine, rounds=1, engine="serial", loss=half_square, folder=tmp_path / "x"
        )


def now_and_then(hop):
    """Remembers at every other visit, and tells whether it remembered."""
    return {"remembered": torch.tensor([float("x" in hop.memory)])}, {} if "x" in hop.memory else {"x": torch.ones(1)}


def count(state, results, setting):
    told = sum(float(result.uploads["remembered"]) for result in results)
    return {**state, "told": torch.cat([state.get("told", torch.zeros(0)), torch.tensor([told])])}


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_client_may_forget(tmp_path, engine):
    forgetful = fedseq.Algorithm("forgetful", finish=now_and_then, observe=count)
    options = {"loss": half_square, "rounds": 5, "fraction": 1.0, "engine": engine, "folder": tmp_path / "run"}
    fedseq.federate(line, CLIENTS, CLIENTS[0], forgetful, **options)
    assert list(final_state(tmp_path / "run")["told"]) == [0, 3, 0, 3, 0]
    assert len(final_memory(tmp_path / "run")) == 3
    fedseq.federate(line, CLIENTS, CLIENTS[0], forgetful, **{**options, "rounds": 6})
    assert final_memory(tmp_path / "run") == {}
