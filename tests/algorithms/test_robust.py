"""Median and trimmed mean, by hand and under attack."""

import re
import warnings

import numpy as np
import pytest
import torch

import fedseq
from fedseq.algorithms import Setting, ema, median, trimmed_mean
from fedseq.algorithms import fedseq as fedseq_
from fedseq.algorithms.robust import coordinate_median, coordinate_trimmed_mean, too_few
from fedseq.basics.errors import FedSeqError


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


@pytest.mark.parametrize("trimmed", [-0.1, 0.5, 0.9, float("nan")])
def test_something_is_left_in_the_middle(trimmed):
    with pytest.raises(FedSeqError, match=r"trimmed must be from 0 to less than 0\.5"):
        trimmed_mean(trimmed=trimmed)


def test_the_most_that_can_be_trimmed():
    """0.49 of ten models is four, in whole models: two are left, 4 and 5."""
    merge = trimmed_mean(trimmed=0.49).merge
    setting = Setting(num_clients=10, num_units=10, units_per_round=10, num_parameters=1)
    merged = merge({"weights": torch.zeros(1)}, [torch.tensor([float(n)]) for n in range(10)], [1.0] * 10, setting)
    assert merged["weights"].item() == 4.5


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
def test_one_attacker_in_ten_does_not_move_the_model(tmp_path, rule):
    """Ten clients with the same data; one sends its update a million times too large."""
    x = torch.linspace(-1, 1, 40)[:, None].repeat(1, 2)
    y = (x[:, 0] > 0).long()
    options = {"rounds": 5, "fraction": 1.0, "lr": 0.5, "engine": "serial", "update_check": "none"}
    attack = {"attack": "scale:1e6", "attacker_fraction": 0.1}

    def go(name, algorithm, **more):
        model = lambda: torch.nn.Linear(2, 2)  # noqa: E731
        run = fedseq.federate(model, [(x, y)] * 10, (x, y), algorithm, folder=tmp_path / name, **options, **more)
        return np.concatenate([tensor.numpy().ravel() for tensor in run.weights().values()])

    clean, attacked, averaged = go("clean", rule), go("attacked", rule, **attack), go("averaged", "fedavg", **attack)
    assert np.abs(attacked - clean).max() < 0.2
    assert np.abs(averaged - clean).max() > 1000


@pytest.mark.parametrize(
    ("rule", "clients", "fraction", "words"),
    [
        ("median", 10, 0.2, "merges 2 of 10 units.*needs 3: one liar is not outvoted. Use --fraction 0.3"),
        ("trimmed-mean", 6, 0.5, "merges 3 of 6 units.*needs 5: all but the middle.*--fraction 0.84"),
        ("median", 2, 1.0, "merges 2 of 2 units.*Use more units"),
        ("median", 10, 0.3, None),
        ("trimmed-mean", 6, 0.84, None),
        ("fedavg", 2, 1.0, None),
    ],
)
def test_a_median_of_two_is_a_mean_and_said_to_be(tmp_path, rule, clients, fraction, words):
    pair = (torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fedseq.federate(
            lambda: torch.nn.Linear(2, 2), [pair] * clients, pair, rule, folder=tmp_path / "run", rounds=1,
            fraction=fraction, engine="serial",
        )  # fmt: skip
    said = [str(warning.message) for warning in told if "units a round" in str(warning.message)]
    assert len(said) == (words is not None)
    if words:
        assert re.search(words, said[0])


def test_too_few_units_are_noticed_behind_an_average_too():
    """A median of two is their mean."""
    setting = Setting(num_clients=10, num_units=10, units_per_round=2, num_parameters=1)
    assert "fedseq+median+ema merges 2 of 10 units" in (too_few(ema(fedseq_(median())), setting, 2) or "")
    assert too_few(ema(), setting, 2) is None


def test_joined_chains_are_counted_as_what_is_merged():
    """Ten superclients of a round in two chains: a median of two."""
    setting = Setting(num_clients=100, num_units=50, units_per_round=10, num_parameters=1)
    assert too_few(fedseq_(median()), setting, 10) is None
    assert "merges 2 chains of joined superclients" in (too_few(fedseq_(median()), setting, 2) or "")
