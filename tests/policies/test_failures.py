"""Dropouts, stragglers, attackers and the gate, on whole runs."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedseq
from fedseq.algorithms.base import FEDAVG
from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.policies.attackers import attackers
from fedseq.policies.failures import failing_hops
from fedseq.policies.gate import Gate, GateMemory, reason_to_reject
from fedseq.simulation.clock import Clock
from fedseq.training.jobs import Job
from fedseq.training.policy import Plan
from fedseq.training.weights import all_finite

SHORT = {"dataset": "digits", "grouping": "random", "engine": "serial", "algorithm": "fedseq"}
LONG = {**SHORT, "rounds": 100, "eval_every": 5, "engine": "processes"}
SEEDS = (0, 1)


def final(runs):
    return np.mean([accuracy for run in runs for _, accuracy in run.evaluations[-4:]])


def train(folder, **options):
    return [fedseq.run(LONG, folder / str(seed), seed=seed, **options) for seed in SEEDS]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return train(tmp_path_factory.mktemp("clean"))


class TestDropout:
    def test_hops_fail_at_the_rate_asked_for_and_the_same_ones_every_time(self):
        config = resolve({"client_dropout": 0.3})
        hops = [(client, 0) for client in range(100)]
        clock = Clock(config, 1, 0)
        failed = [failing_hops(config, clock, round_, hops, [14] * 100) for round_ in range(1, 51)]
        # 5,000 hops at 0.3: 1,500 expected, standard deviation sqrt(5000 * .3 * .7) = 32.
        assert abs(sum(map(len, failed)) - 1500) < 5 * 32
        assert failed[3] == failing_hops(config, clock, 4, hops, [14] * 100)
        assert failed[3] != failed[4]

    def test_skipped_hops_are_recorded_and_do_not_train(self, tmp_path):
        run = fedseq.run({**SHORT, "rounds": 5}, tmp_path / "run", client_dropout=0.4)
        whole = fedseq.run({**SHORT, "rounds": 5}, tmp_path / "whole")
        for line, without in zip(run.metrics, whole.metrics, strict=True):
            gone = {hop["client"] for hop in line["skipped"]}
            assert {hop["reason"] for hop in line["skipped"]} <= {"dropout"}
            # The chain goes on in the same order, without those who failed.
            expected = [[client for client in chain if client not in gone] for chain in without["clients"]]
            assert line["clients"] == [chain for chain in expected if chain]
        assert any(line["skipped"] for line in run.metrics)

    def test_all_gone_leaves_the_model_as_it_was(self, tmp_path):
        run = fedseq.run({**SHORT, "rounds": 3}, tmp_path / "run", client_dropout=1.0)
        assert all(line["client_updates"] == 0 and line["clients"] == [] and line["skipped"] for line in run.metrics)
        assert len({line["accuracy"] for line in run.metrics}) == 1

    def test_weights_count_only_what_was_trained(self, tmp_path):
        # Two clients with one example each pull a single weight to 0 and to 6; one SGD step with lr 0.5 on
        # (w - y)^2 goes all the way to y. With both, the mean is 3; when client 1 drops out, it is 0.
        clients = [(torch.zeros(1, 1), torch.zeros(1, 1)), (torch.zeros(1, 1), torch.full((1, 1), 6.0))]
        options = {"rounds": 1, "lr": 0.5, "fraction": 1.0, "weight_decay": 0.0, "engine": "serial"}

        def go(name, **more):
            run = fedseq.federate(
                Bias, clients, clients[0], "fedavg", loss=nn.functional.mse_loss, folder=tmp_path / name,
                **options, **more,
            )  # fmt: skip
            return run, run.weights()["bias"].item()

        assert go("both")[1] == pytest.approx(3.0)
        seed = next(seed for seed in range(100) if len(_lost(seed)) == 1)
        run, value = go("one", client_dropout=0.5, seed=seed)
        (left,) = {0, 1} - _lost(seed)
        assert run.metrics[0]["clients"] == [[left]]
        assert value == pytest.approx(6.0 * left)

    @pytest.mark.slow
    def test_a_third_of_the_hops_may_fail_and_most_of_them_too(self, tmp_path, clean):
        assert final(train(tmp_path, client_dropout=0.3)) > final(clean) - 0.03
        assert fedseq.run({**LONG, "rounds": 10}, tmp_path / "most", client_dropout=0.9).finished


def _lost(seed):
    config = resolve({"client_dropout": 0.5, "seed": seed})
    failed = failing_hops(config, Clock(config, 1, 0), 1, [(0, 0), (1, 0)], [1, 1])
    return {hop.client for hop in failed}


class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.bias.expand(len(x), 1)


class TestDeadline:
    def test_slow_clients_are_skipped(self):
        # One batch a visit: 1 step at 10 steps/s takes 0.1 s.
        config = resolve({"speed_spread": 0.0, "deadline": 0.13, "bandwidth": 1e5})
        clock = Clock(config, 1, 2000)  # and 0.02 s for the bytes
        assert clock.hop(5, 14) == pytest.approx(0.12)
        assert clock.hop(5, 65) == pytest.approx(0.22)  # two batches
        assert failing_hops(config, clock, 1, [(0, 0), (1, 0)], [14, 65]) == ((1, 0, "deadline"),)

    def test_speeds_differ_by_client_and_stay(self):
        config = resolve({"speed_spread": 0.5})
        clock = Clock(config, 1, 0)
        seconds = np.array([clock.hop(client, 14) for client in range(2000)])
        assert np.median(seconds) == pytest.approx(0.1, rel=0.1)
        assert np.log(seconds).std() == pytest.approx(0.5, rel=0.1)
        assert seconds[7] == Clock(config, 1, 0).hop(7, 14)


class TestGate:
    def test_the_limit_is_a_multiple_of_the_median(self):
        plan = Plan(1, [Job(0, 0, 1, ((0, 0),), torch.zeros(1), FEDAVG, 0.1)], [0])

        def limit(factor: float | None, *changes: float) -> float:
            return Gate(factor).plan(plan, GateMemory(changes).written()).jobs[0].notes["gate"].largest_change

        assert limit(None, 1.0) == math.inf
        assert limit(5.0) == math.inf
        assert limit(5.0, 1.0, 2.0, 100.0) == 10.0

    @pytest.mark.parametrize(
        ("change", "weight", "loss", "reason"),
        [
            (1.0, 1.0, 1.0, None),
            (2.1, 1.0, 1.0, "change 2.1 is more than 2"),
            (math.nan, 1.0, 1.0, "not finite"),
            (1.0, math.inf, 1.0, "not finite"),
            (1.0, 1.0, math.nan, "not finite"),
        ],
    )
    def test_reasons(self, change, weight, loss, reason):
        assert reason_to_reject(change, [torch.zeros(3), torch.tensor([weight])], loss, 2.0) == reason

    @pytest.mark.slow
    @pytest.mark.parametrize("attack", ["nan", "scale:1000"])
    def test_with_the_gate_attackers_do_no_harm_and_are_named(self, tmp_path, clean, attack):
        gated = train(tmp_path, attack=attack)
        assert final(gated) > final(clean) - 0.03
        for run in gated:
            bad = set(attackers(run.config, 100))
            assert len(bad) == 10
            rejected = {hop["client"] for line in run.metrics for hop in line["skipped"]}
            trained = {client for line in run.metrics for chain in line["clients"] for client in chain}
            assert rejected >= bad
            if attack == "nan":  # a thousand times almost nothing may pass
                assert not trained & bad

    @pytest.mark.slow
    def test_without_the_gate_nan_stops_the_run_and_large_updates_ruin_it(self, tmp_path, clean):
        with pytest.raises(FedSeqError, match=r"diverged in round \d+, unit \d+, client \d+"):
            fedseq.run(LONG, tmp_path / "nan", attack="nan", update_check="none")
        try:
            ruined = final([fedseq.run(LONG, tmp_path / "scale", attack="scale:1000", update_check="none")])
        except FedSeqError:
            ruined = 0.0  # it diverged
        assert ruined < final(clean) - 0.2

    @pytest.mark.slow
    def test_a_clean_run_is_hardly_touched(self, tmp_path, clean):
        gated = train(tmp_path, update_check="size")
        hops = sum(line["client_updates"] for run in gated for line in run.metrics)
        assert sum(len(line["skipped"]) for run in gated for line in run.metrics) < 0.01 * hops
        assert final(gated) > final(clean) - 0.03

    def test_three_rounds_without_an_accepted_hop_are_a_divergence(self, tmp_path):
        with pytest.raises(FedSeqError, match="3 rounds in a row, up to round 3"):
            fedseq.run({**SHORT, "rounds": 9}, tmp_path / "run", attack="nan", attacker_fraction=1.0)
        assert [line["client_updates"] for line in fedseq.read_run(tmp_path / "run").metrics] == [0, 0]

    def test_resuming_keeps_the_measure(self, tmp_path):
        options = {**SHORT, "attack": "scale:20", "update_check_factor": 3.0}
        whole = fedseq.run({**options, "rounds": 6}, tmp_path / "whole")
        fedseq.run({**options, "rounds": 3}, tmp_path / "parts")
        assert fedseq.resume(tmp_path / "parts", rounds=6).metrics == whole.metrics


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    """Ten times 3e38 is more than a float32 holds, 3.4e38."""
    assert all_finite(torch.full((10,), 3e38))
    assert all_finite(torch.arange(3))
    assert all_finite(torch.empty(0))
    assert reason_to_reject(1.0, [torch.full((10,), 3e38)], 1.0, 2.0) is None
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert not all_finite(torch.tensor([1.0, bad, float("inf")]))
