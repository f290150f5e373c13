"""Private runs from outside: neutral values, the same bits everywhere, what is spent, and that no more ever is."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedseq
from algorithms.toys import final_weights
from fedseq import FedSeqError
from fedseq.algorithms import feddyn, fedseqinter
from fedseq.options.config import Config
from fedseq.options.resolve import resolve
from fedseq.privacy.gaussian import epsilon_of
from fedseq.runs.reading import Run

SIZES = [9, 4, 1, 6, 12, 3]
GROUPS = [(0, 3), (4,), (1, 2, 5)]
SINGLETONS = [(k,) for k in range(len(SIZES))]
OPTIONS: dict[str, Any] = {
    "rounds": 3, "fraction": 0.7, "lr": 0.2, "batch_size": 4, "seed": 11, "engine": "serial",
}  # fmt: skip
VISITS: dict[str, Any] = {"dp_clip_norm": 0.3, "dp_noise_multiplier": 0.7}
ROUNDS: dict[str, Any] = {**VISITS, "dp_mechanism": "round"}
OFF: dict[str, Any] = {"dp_clip_norm": math.inf, "dp_noise_multiplier": 0.0}


def clients() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in SIZES]


def network() -> nn.Module:
    return nn.Linear(4, 3)


def train(folder: Path, algorithm: Any, groups: Any = GROUPS, model: Any = network, **options: Any) -> Run:
    data = clients()
    seq = "fedseq" in (algorithm if isinstance(algorithm, str) else algorithm.name)
    chosen = {**OPTIONS, **options}
    return fedseq.federate(model, data, data[0], algorithm, groups=groups if seq else None, folder=folder, **chosen)


def spent(run: Run) -> list[float | None]:
    return [line["epsilon"] for line in run.metrics]


@pytest.mark.parametrize("mechanism", ["visit", "round"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedseq", "fedseq+fedprox+fedavgm+ema"])
def test_no_clip_and_no_noise_is_no_privacy_bit_for_bit(tmp_path: Path, algorithm: str, mechanism: str) -> None:
    plain = final_weights(train(tmp_path / "plain", algorithm))
    neutral = train(tmp_path / "neutral", algorithm, **OFF, dp_mechanism=mechanism)
    assert np.array_equal(final_weights(neutral), plain)
    assert spent(neutral) == [None] * 3  # it promises nothing, and says so
    assert [line["train_loss"] for line in neutral.metrics] == [None] * 3


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "fedseqinter", "fedseq+median"])
def test_so_it_is_for_every_rule_that_private_visits_take(tmp_path: Path, algorithm: str) -> None:
    plain = final_weights(train(tmp_path / "plain", algorithm))
    assert np.array_equal(final_weights(train(tmp_path / "neutral", algorithm, **OFF)), plain)
    assert not np.array_equal(final_weights(train(tmp_path / "private", algorithm, **VISITS)), plain)


@pytest.mark.parametrize("private", [VISITS, ROUNDS], ids=["visit", "round"])
def test_laws_hold_for_private_algorithms(tmp_path: Path, private: dict[str, Any]) -> None:
    """FedSeq of singletons is FedAvg, mu = 0 is FedAvg, a period of 1 is FedSeq: noise goes by client and round."""
    cases: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("fedavg", "fedavg", GROUPS, {}), ("singletons", "fedseq", SINGLETONS, {}),
        ("prox", "fedprox", GROUPS, {"mu": 0.0}), ("fedseq", "fedseq", GROUPS, {}),
        ("period-1", "fedseqinter", GROUPS, {"merge_every": 1}),
    ]  # fmt: skip
    weights = {
        name: final_weights(train(tmp_path / name, algorithm, groups, **private, **more))
        for name, algorithm, groups, more in cases
    }
    assert np.array_equal(weights["fedavg"], weights["singletons"])
    assert np.array_equal(weights["fedavg"], weights["prox"])
    assert np.array_equal(weights["fedseq"], weights["period-1"])
    assert not np.array_equal(weights["fedseq"], weights["fedavg"])


@pytest.mark.parametrize("private", [VISITS, ROUNDS], ids=["visit", "round"])
def test_worker_processes_give_the_same_bits_and_the_same_lines(tmp_path: Path, private: dict[str, Any]) -> None:
    one = train(tmp_path / "serial", "fedseq", **private)
    two = train(tmp_path / "processes", "fedseq", **private, engine="processes", workers=2)
    assert np.array_equal(final_weights(one), final_weights(two))
    assert one.metrics == two.metrics


KILLED = """
import os, signal
from dataclasses import replace
from pathlib import Path
import sys
sys.path.insert(0, {tests!r})
from fedseq.training import chains
from runs.test_private_runs import VISITS, train

inner = chains.train_hop
def dies(task, model, job, *rest):
    if job.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(task, model, job, *rest)
chains.train_hop = dies
train(Path({folder!r}), "fedseq", checkpoint_every=1, **VISITS)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    """A visit that is made again gives the same bits, so that nothing new is learned; all others have their own."""
    straight = train(tmp_path / "straight", "fedseq", checkpoint_every=1, **VISITS)
    code = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "killed"))
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False)
    assert ended.returncode == -signal.SIGKILL
    resumed = train(tmp_path / "killed", "fedseq", checkpoint_every=1, **VISITS)
    assert np.array_equal(final_weights(resumed), final_weights(straight))
    assert resumed.metrics == straight.metrics


def test_epsilon_is_that_of_the_client_visited_most_often(tmp_path: Path) -> None:
    """Counted by hand from who trained: v visits with noise z are a Gaussian mechanism with mu = sqrt(v)/z."""
    run = train(tmp_path, "fedseq", superclient_epochs=2, **VISITS)
    visits = np.zeros(len(SIZES))
    for line in run.metrics:
        for chain in line["clients"]:
            for client in chain:
                visits[client] += 1
        assert line["epsilon"] == pytest.approx(epsilon_of(math.sqrt(visits.max()) / 0.7, 1e-5))
    assert visits.max() >= 4


def test_pre_training_and_the_gates_calibration_count_as_visits(tmp_path: Path) -> None:
    options = {"dataset": "digits", "num_clients": 8, "pretrain_epochs": 2, "min_samples": 400, "rounds": 1,
               "fraction": 1.0, "engine": "serial", "eval_every": 9, "update_check": "size"}  # fmt: skip
    run = fedseq.run(options, tmp_path, algorithm="fedseq", dp_clip_norm=1.0, dp_noise_multiplier=2.0)
    assert spent(run) == [pytest.approx(epsilon_of(math.sqrt(2 + 1 + 1) / 2.0, 1e-5))]


@pytest.mark.parametrize("mechanism", ["visit", "round"])
def test_no_resume_goes_past_the_budget(tmp_path: Path, mechanism: str) -> None:
    budget = {
        "dp_clip_norm": 0.3,
        "dp_noise_multiplier": 2.0,
        "dp_target_epsilon": 6.0,
        "dp_mechanism": mechanism,
        "eval_every": 50,
    }
    with pytest.warns(UserWarning, match="one more would exceed the privacy budget of epsilon 6"):
        run = train(tmp_path, "fedavg", rounds=40, **budget)
    assert 0 < run.rounds < 40
    assert run.metrics[-1]["epsilon"] <= 6.0
    assert run.metrics[-1]["accuracy"] is not None  # the last round is evaluated, whichever it is
    with pytest.warns(UserWarning, match="one more would exceed"):
        more = train(tmp_path, "fedavg", rounds=80, **budget)
    assert more.rounds == run.rounds
    with pytest.raises(FedSeqError, match=r"--dp-target-epsilon 6\.0 -> 60\.0"):
        train(tmp_path, "fedavg", rounds=80, **{**budget, "dp_target_epsilon": 60.0})


def test_with_noise_from_the_system_what_was_asked_counts_also_in_a_round_that_was_lost(tmp_path: Path) -> None:
    options = {**VISITS, "dp_source": "system", "fraction": 1.0}
    train(tmp_path, "fedavg", rounds=1, **options)
    ledger = json.loads((tmp_path / "privacy.json").read_text())
    assert ledger == {"visits": [1] * 6}
    # As a server leaves it that was killed after it had sent out round 2, before the round was written down.
    (tmp_path / "privacy.json").write_text(json.dumps({"visits": [2] * 6}))
    run = train(tmp_path, "fedavg", rounds=2, **options)
    assert run.metrics[-1]["epsilon"] == pytest.approx(epsilon_of(math.sqrt(3) / 0.7, 1e-5))
    (tmp_path / "privacy.json").write_text("{}")
    with pytest.raises(FedSeqError, match="does not hold the visits of 6 clients"):
        train(tmp_path, "fedavg", rounds=3, **options)


def federation(**options: Any) -> Config:
    pytest.importorskip("flwr")
    from fedseq.flower.run_options import read_run_config

    return read_run_config({"dataset": "digits", "num-clients": 4, "algorithm": "fedavg", **options})[0]


def test_a_real_client_keeps_an_account_of_its_own_over_all_runs(tmp_path: Path) -> None:
    """v visits with z = 2 are mu = sqrt(v)/2: as many as keep epsilon below 3.1 are made, and not one more."""
    pytest.importorskip("flwr")
    from fedseq.flower.client_memory import charge_visits

    config = federation(**{"dp-clip-norm": 1.0, "dp-noise-multiplier": 2.0, "dp-target-epsilon": 3.1})
    assert config.dp_source == "system"
    allowed = max(v for v in range(1, 20) if epsilon_of(math.sqrt(v) / 2, 1e-5) <= 3.1)
    for _ in range(allowed):
        charge_visits(config, tmp_path, client=1, visits=1)
    with pytest.raises(FedSeqError, match=r"the privacy budget of client 1, epsilon 3\.1, is spent"):
        charge_visits(config, tmp_path, client=1, visits=1)
    charge_visits(config, tmp_path, client=2, visits=1)  # another's is its own
    with pytest.raises(FedSeqError, match="no memory-dir"):
        charge_visits(config, None, client=1, visits=1)
    (tmp_path / "privacy-1.json").write_text('{"mu2": "none"}')
    with pytest.raises(FedSeqError, match="does not say what was spent"):
        charge_visits(config, tmp_path, client=1, visits=1)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def test_what_no_noise_covers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedSeqError, match="keeps statistics of its examples"):
        train(tmp_path / "buffers", "fedavg", model=normalised, **VISITS)
    told = {feddyn(0.1): "lets its server see chains without noise", fedseqinter(): "go from chain to chain without"}
    for algorithm, words in told.items():
        with pytest.raises(FedSeqError, match=words):
            train(tmp_path / "own", algorithm, **ROUNDS)


@pytest.mark.parametrize("mechanism", ["visit", "round"])
def test_noise_for_a_budget_is_found_for_the_clients_that_exist(tmp_path: Path, mechanism: str) -> None:
    """By hand: 10 hospitals of which 2 a round, where files are dealt to 100 clients: all 12 rounds are within it."""
    rows = [f"{hospital},{value},{value % 2}" for hospital in range(10) for value in range(12)]
    (tmp_path / "visits.csv").write_text("\n".join(["hospital,pressure,label", *rows]))
    promise = {"rounds": 12, "dp_clip_norm": 1.0, "dp_target_epsilon": 8.0, "dp_mechanism": mechanism}
    data = {"dataset": f"csv:{tmp_path / 'visits.csv'}", "clients_by": "hospital"}
    options = {**data, **promise, "algorithm": "fedavg", "engine": "serial"}
    run = fedseq.run(options, tmp_path / "run")
    assert run.rounds == 12
    assert 4 < (spent(run)[-1] or 0) <= 8
    counted = resolve({**promise, "algorithm": "fedavg", "num_clients": 10})
    assert run.config.dp_noise_multiplier == counted.dp_noise_multiplier
    assert fedseq.run(options, tmp_path / "run").rounds == 12  # the same again is the same run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"dp_noise_multiplier": 1.0},
            "--dp-noise-multiplier has no effect in this run: it is for --dp-clip-norm",
        ),
        ({"dp_clip_norm": 1.0}, "give --dp-noise-multiplier, or --dp-target-epsilon to compute it"),
        ({"dp_clip_norm": 1.0, "dp_noise_multiplier": -1.0}, "--dp-noise-multiplier must be 0, or at least"),
        ({"dp_clip_norm": 1.0, "dp_noise_multiplier": math.inf}, "--dp-noise-multiplier must be 0, or at least"),
        ({"dp_clip_norm": -1.0, "dp_noise_multiplier": 1.0}, "--dp-clip-norm must be greater than 0"),
        ({"dp_clip_norm": math.inf, "dp_noise_multiplier": 1.0}, "noise is measured in units of --dp-clip-norm"),
        ({**VISITS, "dp_target_delta": 0.0}, "--dp-target-delta must be at least 1e-100"),
        ({**ROUNDS, "algorithm": "fedseq"}, "Use --grouping random"),
        ({**ROUNDS, "algorithm": "median"}, "median cannot be used with --dp-mechanism round"),
        ({**ROUNDS, "algorithm": "feddyn"}, "feddyn cannot be used with --dp-mechanism round"),
        ({**ROUNDS, "algorithm": "scaffold"}, "scaffold cannot be used with --dp-mechanism round"),
        ({**ROUNDS, "algorithm": "fedseqinter", "grouping": "random"}, "fedseqinter cannot be used"),
        ({**ROUNDS, "update_check": "size"}, "--update-check has no effect in this run"),
        ({**VISITS, "dataset": "smartwatch", "eval_clients": 2}, "--eval-clients shows how well the model fits"),
        ({**VISITS, "algorithm": "centralized"}, "--dp-clip-norm has no effect"),
    ],
)
def test_mistakes_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        resolve({"dataset": "digits", "algorithm": "fedavg", **options})
