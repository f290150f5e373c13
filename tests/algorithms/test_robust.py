"""Median and trimmed mean, by hand and under attack."""

import numpy as np
import pytest
import torch

import fedseq
from fedseq.algorithms.robust import coordinate_median, coordinate_trimmed_mean


@pytest.mark.parametrize(
    ("column", "expected"),
    [([3.0, 1.0, 100.0], 3.0), ([3.0, 1.0, 100.0, 5.0], 4.0), ([7.0], 7.0), ([1.0, 2.0], 1.5)],
)
def test_median(column, expected):
    models = torch.tensor([[value, -value] for value in column])
    assert coordinate_median(models).tolist() == [expected, -expected]


@pytest.mark.parametrize(
    ("column", "trimmed", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 1000.0], 0.2, 3.0),  # one at either end of five
        ([1.0, 2.0, 3.0], 0.2, 2.0),  # at least one of each
        ([1.0, 3.0], 0.2, 2.0),  # of two, none
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 99.0], 0.2, 4.5),  # 2..7
    ],
)
def test_trimmed_mean(column, trimmed, expected):
    assert coordinate_trimmed_mean(torch.tensor(column)[:, None], trimmed).item() == pytest.approx(expected)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
def test_one_attacker_in_ten_does_not_move_the_model(tmp_path, rule):
    """Ten clients with the same data; one sends its update a million times too large."""
    x = torch.linspace(-1, 1, 40)[:, None].repeat(1, 2)
    y = (x[:, 0] > 0).long()
    options = {"rounds": 5, "fraction": 1.0, "lr": 0.5, "engine": "serial", "gate": False}
    attack = {"attack": "scale:1e6", "attackers": 0.1}

    def go(name, algorithm, **more):
        model = lambda: torch.nn.Linear(2, 2)  # noqa: E731
        run = fedseq.federate(model, [(x, y)] * 10, (x, y), algorithm, folder=tmp_path / name, **options, **more)
        return np.concatenate([tensor.numpy().ravel() for tensor in run.weights().values()])

    clean, attacked, averaged = go("clean", rule), go("attacked", rule, **attack), go("averaged", "fedavg", **attack)
    assert np.abs(attacked - clean).max() < 0.2
    assert np.abs(averaged - clean).max() > 1000
