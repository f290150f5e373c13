"""The audit on our mechanisms, and on copies that are broken on purpose. Expected: below the promise, and far above."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from fedseq.options.resolve import resolve
from fedseq.policies.privacy import Mechanism
from test_results import load

benchmark = load("privacy_audit")
audit, Audit, findings, lower_bound, p_value = (
    getattr(benchmark, name) for name in ("audit", "Audit", "findings", "lower_bound", "p_value")
)

OPTIONS: dict[str, Any] = {
    "dataset": "digits", "num_clients": 200, "partition": "iid", "model": "mlp", "algorithm": "fedseq",
    "grouping": "random", "min_samples": 20, "fraction": 1.0, "rounds": 1, "dp_clip_norm": 1.0,
    "dp_target_epsilon": 1.0, "lr": 0.01,
}  # fmt: skip


def audited(**options: Any) -> Any:
    return audit(resolve({**OPTIONS, **options}))


def silent(self: Mechanism, like: Tensor, purpose: str, *keys: int) -> Tensor:
    return torch.zeros_like(like)


inner = Mechanism.gaussian


def forgetful(self: Mechanism, like: Tensor, purpose: str, *keys: int) -> Tensor:
    """No noise at the second visit of a round."""
    return torch.zeros_like(like) if keys[-1] == 1 else inner(self, like, purpose, *keys)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["visit", "round"])
def test_our_mechanisms_keep_their_promise(mechanism: str) -> None:
    found = audited(dp_mechanism=mechanism)
    assert found.claimed <= 1.0
    assert found.reader <= found.claimed
    assert not found.broken
    if mechanism == "visit":
        assert found.successor <= found.claimed
    else:  # which do not hide a client from its successor
        assert found.successor > 3.0


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [silent, forgetful])
def test_a_copy_without_noise_or_with_noise_forgotten_at_one_place_is_found(
    monkeypatch: pytest.MonkeyPatch, mutation: Any
) -> None:
    """All 200 guesses right refute every epsilon below log(p/(1-p)) with p = 0.01^(1/200): 3.8, less delta's part."""
    monkeypatch.setattr(Mechanism, "gaussian", mutation)
    found = audited(superclient_epochs=2)
    assert found.claimed <= 1.0
    assert found.successor > 3.0
    assert found.broken


@pytest.mark.slow
def test_a_round_without_noise_is_found_by_the_reader_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "gaussian", silent)
    found = audited(dp_mechanism="round")
    assert found.reader > 3.0
    assert found.broken


def test_a_bound_below_the_promise_is_not_said_to_prove_it() -> None:
    found = [
        findings(Audit(1.0, 0.12, reader, 200, protects)).rows for reader, protects in ((3.75, True), (0.0, False))
    ]
    assert [row[-1] for rows in found for row in rows] == ["not broken", "BROKEN", "not protected", "not broken"]


def test_the_bound_is_the_binomial_one_where_delta_is_0() -> None:
    """90 of 100 right: P(Bin(100, p) >= 90) is 0.01 at the epsilon that is found, as five shares are tried."""
    scores, present = [1.0] * 100, [number < 90 for number in range(100)]
    found = lower_bound(scores, present, delta=0.0)
    assert p_value(90, 100, 100, math.log(3), 0.0) == pytest.approx(binom.sf(89, 100, 0.75))
    alone = [p_value(hits, n, 100, found, 0.0) for hits, n in ((90, 100), (50, 50), (25, 25))]
    assert min(alone) == pytest.approx(0.01, rel=0.05)
    assert lower_bound(scores, [number % 2 == 0 for number in range(100)], delta=1e-5) == 0.0
