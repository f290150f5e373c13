"""What leaves a client of a private run, and the sum of a private round: measured from outside."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedseq.algorithms import fedavg, fedprox, scaffold
from fedseq.algorithms.base import Algorithm
from fedseq.policies.privacy import Mechanism, PrivateVisits, release_round, system_gaussian
from fedseq.training.chains import run_job
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Task
from fedseq.training.sgd import build

SIZE = 5000  # parameters


def module() -> nn.Module:
    return nn.Linear(SIZE, 1, bias=False)


def task(privacy: Mechanism | None) -> Task:
    x = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(1))
    data = Examples(x, x.sum(1, keepdim=True))
    policies = (PrivateVisits(privacy),) if privacy else ()
    clients = [np.arange(4), np.arange(4, 8)]
    return Task(module, data, clients, data, 0, loss=nn.functional.mse_loss, seed=3, policies=policies)


def visit(privacy: Mechanism | None, algorithm: Algorithm | None = None, **changes: Any) -> tuple[Tensor, Any]:
    """The change that leaves client 0, and the whole result."""
    algorithm = algorithm or fedavg()
    model = build(task(privacy))
    start = torch.zeros(SIZE)
    message = {"c": torch.zeros(SIZE)} if algorithm.name == "scaffold" else {}
    job = Job(0, 0, 1, ((0, 0),), start, algorithm, lr=1e-4, message=message)
    result = run_job(task(privacy), model, replace(job, **changes))
    return result.end - start, result


def test_within_the_clip_and_without_noise_a_visit_keeps_its_bits() -> None:
    plain, _ = visit(None)
    for clip in (math.inf, 1.01 * float(plain.norm())):
        found, result = visit(Mechanism(clip, 0.0, seed=3))
        assert torch.equal(found, plain)
        assert result.loss_sum == 0.0  # a private client does not tell


def test_a_longer_change_is_scaled_to_the_clip() -> None:
    plain, _ = visit(None)
    found, _ = visit(Mechanism(0.25, 0.0, seed=3))
    assert float(found.norm()) == pytest.approx(0.25, rel=1e-5)
    assert torch.allclose(found, plain * (0.25 / plain.norm()), atol=1e-7)


@pytest.mark.parametrize("seed", [3, None])
def test_the_noise_that_leaves_a_client_has_the_standard_deviation_it_claims(seed: int | None) -> None:
    """z C = 2 * 0.25; of 5000 numbers the standard deviation is off by 1 % (1/sqrt(2 * 5000)), four times that is rare.

    Kurtosis 3 tells a Gaussian from other noise; its own deviation is sqrt(24/5000) = 0.07.
    """
    clipped, _ = visit(Mechanism(0.25, 0.0, seed=3))
    noisy, _ = visit(Mechanism(0.25, 2.0, seed=seed))
    noise = (noisy - clipped).double()
    assert float(noise.std()) == pytest.approx(0.5, rel=0.04)
    assert abs(float(noise.mean())) < 4 * 0.5 / math.sqrt(SIZE)
    assert float((noise**4).mean() / noise.var() ** 2) == pytest.approx(3.0, abs=0.35)


def test_scaffolds_upload_is_clipped_and_noised_together_with_the_change() -> None:
    """As one vector in which the upload counts by the learning rate: together they are as long as the clip."""
    change, result = visit(Mechanism(0.25, 0.0, seed=3), scaffold())
    step = 1e-4 * result.uploads["c"]
    assert float(torch.cat([change, step]).norm()) == pytest.approx(0.25, rel=1e-5)
    noisy, noised = visit(Mechanism(0.25, 2.0, seed=3), scaffold())
    others = [(noisy - change).double(), (1e-4 * noised.uploads["c"] - step).double()]
    assert [float(noise.std()) for noise in others] == pytest.approx([0.5, 0.5], rel=0.04)
    assert abs(float(torch.corrcoef(torch.stack(others))[0, 1])) < 4 / math.sqrt(SIZE)


def test_scaffolds_variate_on_the_server_drifts_from_the_clients_like_a_random_walk() -> None:
    """Nothing is clipped here. A client keeps its true variate; the server adds up four changes with noise z C / lr,
    over K clients. So they are z C sqrt(V) / (lr K) apart, as docs/algorithms/scaffold.md says."""
    memory: dict[str, Tensor] = {}
    total = torch.zeros(SIZE)
    for round_ in range(1, 5):
        _, result = visit(Mechanism(100.0, 0.02, seed=3), scaffold(), round=round_, memory={0: memory})
        memory, total = result.memory[0], total + result.uploads["c"]
    drift = (total - memory["c"]) / 10
    assert float(drift.double().std()) == pytest.approx(2.0 * math.sqrt(4) / (1e-4 * 10), rel=0.04)


def test_training_that_is_not_finite_is_no_change() -> None:
    found, result = visit(Mechanism(0.25, 0.0, seed=3), fedprox(math.inf))
    assert torch.equal(found, torch.zeros(SIZE))
    assert result.diverged is None


def test_noise_never_repeats_over_client_round_visit_or_purpose() -> None:
    mechanism = Mechanism(0.25, 2.0, seed=3)
    plain = Mechanism(0.25, 0.0, seed=3)
    others: list[dict[str, Any]] = [
        {}, {"round": 2}, {"hops": ((0, 1),)}, {"hops": ((1, 0),)}, {"purpose": "pretrain"}, {"purpose": "calibrate"},
    ]  # fmt: skip
    noises = [visit(mechanism, **changes)[0] - visit(plain, **changes)[0] for changes in others]
    correlations = torch.corrcoef(torch.stack(noises).double()) - torch.eye(len(noises))
    assert float(correlations.abs().max()) < 5 / math.sqrt(SIZE)
    assert torch.equal(visit(mechanism)[0], visit(mechanism)[0])  # and follows from the seed
    system = [visit(Mechanism(0.25, 2.0, seed=None))[0] for _ in range(2)]
    assert not torch.equal(*system)


def test_the_systems_gaussian_is_a_gaussian() -> None:
    """Shares beyond 1, 2 and 3 of 200001 numbers against erfc; an odd number is no trouble."""
    drawn = np.abs(system_gaussian(200_001))
    assert len(drawn) == 200_001
    for limit in (1.0, 2.0, 3.0):
        share = math.erfc(limit / math.sqrt(2))
        assert float((drawn > limit).mean()) == pytest.approx(share, abs=5 * math.sqrt(share / 200_001))


def test_a_private_round_is_the_noisy_sum_of_clipped_changes_over_all_units() -> None:
    """Three of four units: 3 and 4 long in two directions are clipped to 1, the last, not finite, counts as none."""
    changes = [torch.tensor([3.0, 0.0, 0.5]), torch.tensor([0.0, 0.8, 0.0]), torch.tensor([0.0, math.nan, 0.0])]
    found = release_round(Mechanism(1.0, 0.0, seed=3), changes, torch.zeros(3), units=4, round_=1)
    length = math.sqrt(9.25)
    assert found.tolist() == pytest.approx([3 / length / 4, 0.8 / 4, 0.5 / length / 4])
    zeros = torch.zeros(SIZE)
    noise = [release_round(Mechanism(0.5, 2.0, 3), [], zeros, units=4, round_=n) for n in (1, 2)]
    assert float(noise[0].std()) == pytest.approx(2.0 * 0.5 / 4, rel=0.04)
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 5 / math.sqrt(SIZE)
