"""Rules that look back over rounds, fedacg, ghbm and averages, against their formulas, as in test_by_hand.py."""

from functools import partial

import numpy as np
import pytest
import torch

from fedseq import FedSeqError, algorithms
from fedseq.algorithms.base import Algorithm, Setting, initial_state, merge_weighted, models_to_evaluate, starts

from .test_by_hand import (
    LR,
    QUADRATIC,
    STEPS,
    THETA,
    WD,
    Chains,
    Expected,
    average,
    averaging,
    examples,
    feddyn,
    federate,
    loss_of,
    visit,
)
from .toys import final_weights

SETTING = Setting(num_clients=4, num_units=4, units_per_round=2, num_parameters=2)  # of three: the last is a buffer


def trained(start: np.ndarray, round_: list[list[int]], mu: float = 0.0) -> np.ndarray:
    """The weighted mean of what the round's chains make of one model."""
    ends = []
    for chain in round_:
        end = start
        for k in chain:
            end = visit(end, k, pull=mu)
        ends.append(end)
    return average(ends, [examples(chain) for chain in round_])


def acg(chains: Chains, strength: float, mu: float = 0.0) -> Expected:
    """FedACG as its authors write it: m <- lambda m + (mean - sent), theta <- theta + m, with sent = theta + lambda m.

    Ours keeps m = mean - theta, which is the same: lambda m + mean - theta - lambda m.
    """
    theta, m = THETA, np.zeros(2)
    for round_ in chains:
        sent = theta + strength * m
        m = strength * m + trained(sent, round_, mu) - sent
        theta = theta + m
        yield theta


def inter_acg(chains: Chains, every: int, strength: float) -> Expected:
    """FedSeqInter+fedacg: the slots are filled with the model ahead at merges; their mean is evaluated."""
    theta, slots, weight = THETA, [THETA] * len(chains[0]), [0] * len(chains[0])
    for t, round_ in enumerate(chains, start=1):
        for i, chain in enumerate(round_):
            for k in chain:
                slots[i] = visit(slots[i], k)
            weight[i] += examples(chain)
        mean = average(slots, weight)
        if t % every == 0:
            slots, weight = [mean + strength * (mean - theta)] * len(slots), [0] * len(slots)
            theta = mean
        yield mean


def heavy_ball(chains: Chains, beta: float, tau: int) -> Expected:
    """theta[t+1] = mean + beta/tau * (theta[t] - theta[t-tau]), where theta before the first round is theta[0]."""
    thetas = [THETA]
    for t, round_ in enumerate(chains):
        step = thetas[t] - thetas[max(0, t - tau)]
        thetas.append(trained(thetas[t], round_) + beta / tau * step)
        yield thetas[-1]


def moving(inner: Expected, decay: float) -> Expected:
    """sum_i decay^(t-i) theta_i / sum_i decay^(t-i) over the rounds i = 1..t, summed anew in every round."""
    thetas: list[np.ndarray] = []
    for theta in inner:
        thetas.append(theta)
        yield np.average(thetas, axis=0, weights=decay ** np.arange(len(thetas))[::-1])


def last(inner: Expected, count: int) -> Expected:
    thetas: list[np.ndarray] = []
    for theta in inner:
        thetas.append(theta)
        yield np.mean(thetas[-count:], axis=0)


def relayed(chains: Chains, beta: float, start: float = 0.0) -> Expected:
    """v <- beta v + gradient, theta <- theta - LR (v + WD theta), v going on from client to client of a chain."""
    theta, before = THETA, np.zeros(2)
    for round_ in chains:
        ends, velocities = [], []
        for chain in round_:
            end, v = theta, before
            for k in chain:
                A, b = QUADRATIC[k]
                for _ in range(STEPS):
                    v = beta * v + A @ end - b
                    end = end - LR * (v + WD * end)
            ends.append(end)
            velocities.append(v)
        counts = [examples(chain) for chain in round_]
        theta, before = average(ends, counts), start * average(velocities, counts)
        yield theta


CASES = {
    "relay": ("relay", {}, partial(relayed, beta=0.9)),
    "fedseq+relay": ("fedseq+relay", {"relay_momentum": 0.5}, partial(relayed, beta=0.5)),
    "fedseq+relay, from the last round": (
        "fedseq+relay", {"relay_momentum": 0.5, "relay_start": 0.25}, partial(relayed, beta=0.5, start=0.25)
    ),
    "fedacg": ("fedacg", {}, partial(acg, strength=0.85)),
    "fedacg 0.3": ("fedacg", {"fedacg_lambda": 0.3}, partial(acg, strength=0.3)),
    "fedprox+fedacg": ("fedprox+fedacg", {"mu": 0.7}, partial(acg, strength=0.85, mu=0.7)),
    "fedseq+fedacg": ("fedseq+fedacg", {"fedacg_lambda": 0.5}, partial(acg, strength=0.5)),
    "fedseqinter+fedacg": (
        "fedseqinter+fedacg", {"fedacg_lambda": 0.5, "merge_every": 2}, partial(inter_acg, every=2, strength=0.5)
    ),
    "ghbm": ("ghbm", {"momentum_rounds": 2}, partial(heavy_ball, beta=0.9, tau=2)),
    "fedseq+ghbm": (
        "fedseq+ghbm", {"server_momentum": 0.6, "momentum_rounds": 3}, partial(heavy_ball, beta=0.6, tau=3)
    ),
    "heavy ball": ("ghbm", {"server_momentum": 0.4, "momentum_rounds": 1}, partial(heavy_ball, beta=0.4, tau=1)),
    "ema": ("ema", {}, lambda c: moving(averaging(c), 0.9)),
    "fedseq+fedacg+ema": (
        "fedseq+fedacg+ema", {"ema_decay": 0.5, "fedacg_lambda": 0.5}, lambda c: moving(acg(c, 0.5), 0.5)
    ),
    "feddyn+ema": ("feddyn+ema", {"alpha_dyn": 0.6, "ema_decay": 0.7}, lambda c: moving(feddyn(c, 0.6), 0.7)),
    "fedseq+window": ("fedseq+window", {"window": 2}, lambda c: last(averaging(c), 2)),
    "fedseq+ghbm+window": (
        "fedseq+ghbm+window", {"window": 3, "momentum_rounds": 2},
        lambda c: last(heavy_ball(c, beta=0.9, tau=2), 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rounds_by_the_formulas(tmp_path, case):
    algorithm, options, formulas = CASES[case]
    run = federate(tmp_path, algorithm, **options)
    expected = list(formulas([record["clients"] for record in run.metrics]))
    assert [record["loss"] for record in run.metrics] == pytest.approx([loss_of(t) for t in expected], abs=1e-6)
    assert final_weights(run) == pytest.approx(expected[-1], abs=1e-6)
    assert np.abs(expected[-1] - THETA).max() > 0.01, "a toy that stands still shows nothing"


def merged(algorithm: Algorithm, *means: list[float]) -> dict[str, torch.Tensor]:
    """The state after merges of one model each, from (1, 2 | 10)."""
    state = initial_state(algorithm, torch.tensor([1.0, 2.0, 10.0]), SETTING)
    for mean in means:
        state = algorithm.merge(state, [torch.tensor(mean)], [1.0], SETTING)
    return state


def test_a_velocity_doubles_the_bytes_of_every_hop(tmp_path):
    """Two parameters: 8 bytes of model and 8 of velocity, down and up."""
    for line in federate(tmp_path, "fedseq+relay").metrics:
        assert line["bytes_down"] == line["bytes_up"] == 16 * line["client_updates"]


def test_relay_refuses_a_second_momentum(tmp_path):
    with pytest.raises(FedSeqError, match="momentum of its own"):
        federate(tmp_path, "fedseq+relay", momentum=0.9)


def test_what_is_sent_is_ahead_of_what_is_evaluated_and_buffers_stay():
    """From (1, 2) to (3, 1): m = (2, -1), and half of it ahead is (4, 0.5)."""
    algorithm = algorithms.fedacg(strength=0.5)
    state = merged(algorithm, [3.0, 1.0, 20.0])
    assert [start.tolist() for start in starts(algorithm, state, 2)] == [[4.0, 0.5, 20.0]] * 2
    assert models_to_evaluate(algorithm, state, SETTING)[""].tolist() == [3.0, 1.0, 20.0]


def test_heavy_ball_acts_on_parameters():
    """tau 2, beta 0.5. First to (3, 1); then (5, 1) + 0.5/2 ((3, 1) - (1, 2)) = (5.5, 0.75)."""
    state = merged(algorithms.ghbm(momentum=0.5, rounds=2), [3.0, 1.0, 20.0], [5.0, 1.0, 30.0])
    assert state["weights"].tolist() == [5.5, 0.75, 30.0]


def test_averages_hold_buffers_and_leave_out_the_initial_model():
    """Models (3, 1 | 20) and (5, 1 | 32): decay 0.5 weighs them 1 to 2; a window weighs them alike."""
    models = [3.0, 1.0, 20.0], [5.0, 1.0, 32.0]
    for algorithm, expected in (
        (algorithms.ema(decay=0.5), [13 / 3, 1.0, 28.0]),
        (algorithms.window(models=2), [4.0, 1.0, 26.0]),
    ):
        found = models_to_evaluate(algorithm, merged(algorithm, *models), SETTING)
        assert found[""].tolist() == pytest.approx(expected)
        assert found["raw"].tolist() == models[1]
        first = models_to_evaluate(algorithm, merged(algorithm, models[0]), SETTING)
        assert first[""].tolist() == models[0]
        assert models_to_evaluate(algorithm, merged(algorithm), SETTING)[""].tolist() == [1.0, 2.0, 10.0]


def test_the_raw_models_accuracy_is_recorded_beside_the_averages(tmp_path):
    run = federate(tmp_path, "feddyn+window", rounds=2)
    assert all({"accuracy", "accuracy_raw", "accuracy_client_mean"} <= record.keys() for record in run.metrics)


@pytest.mark.parametrize(
    "rule", ["fedavgm", "fedadam", "fedyogi", "fairavg", "median", "trimmed_mean", "fedacg", "ghbm"]
)
@pytest.mark.parametrize("inner", [algorithms.feddyn(), algorithms.fedseq(algorithms.feddyn()), algorithms.fedavgm()])
def test_a_server_rule_refuses_what_has_one_of_its_own(rule, inner):
    with pytest.raises(FedSeqError, match="has a server rule of its own and cannot be combined with"):
        getattr(algorithms, rule)(inner)


def test_averages_and_topologies_leave_a_merge_as_it_is():
    assert algorithms.ema(algorithms.feddyn()).name == "feddyn+ema"
    assert algorithms.fedseq(algorithms.fedprox()).merge is merge_weighted
