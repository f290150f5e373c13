"""The exchange method: swaps worked out on paper, its laws, and that it beats greedy on estimates alone."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.grouping import group_clients, methods, quality
from fedseq.grouping.methods import Groups, Limits, cut, improve, tournament
from fedseq.options.tables import METRICS

from . import simulated

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def objective(groups: Groups, estimates: np.ndarray, sizes: np.ndarray) -> float:
    """sum_S n_S ||mean estimate of S - overall mean||^2, what a swap must lower, by the means themselves."""
    overall = np.average(estimates, axis=0, weights=sizes)
    held = [(sizes[group].sum(), group) for group in groups]
    means = [(n, np.average(estimates[group], axis=0, weights=sizes[group])) for n, group in held if n]
    return float(sum(n * ((mean - overall) ** 2).sum() for n, mean in means))


def test_swaps_until_both_groups_are_mixed():
    # The overall mean is (1/2, 1/2). Each group sums up to +-(1, -1), so it costs 2 / 2 examples, together 2.
    # After one swap both sums are zero.
    estimates, sizes, start = np.array([A, A, B, B]), np.ones(4, dtype=int), [[0, 1], [2, 3]]
    assert objective(start, estimates, sizes) == pytest.approx(2)
    groups = improve(start, estimates, sizes, Limits(2, 2))
    assert all(len({0, 1} & set(group)) == 1 for group in groups)
    assert objective(groups, estimates, sizes) == pytest.approx(0)


def test_swap_that_breaks_the_minimum_is_not_made():
    # As above, but the clients of class A have 3 examples each: a swap would leave the first group 4 of the 6 it needs.
    estimates, sizes, start = np.array([A, A, B, B]), np.array([3, 3, 1, 1]), [[0, 1], [2, 3]]
    assert improve(start, estimates, sizes, Limits(6, 2)) == start
    assert improve(start, estimates, sizes, Limits(4, 2)) != start


def test_short_group_does_not_get_shorter():
    # Group 1 has 3 of the 4 examples it needs. Swapping its 2 for a 1 would balance both groups (2 A and 2 B against
    # 1 A and 1 B) but leave it with 2.
    estimates, sizes, start = np.array([A, A, B, A, B]), np.array([1, 1, 1, 1, 2]), [[0, 1, 2], [3, 4]]
    groups = improve(start, estimates, sizes, Limits(4, 3))
    assert sizes[groups[1]].sum() >= 3


def test_short_groups_may_swap_evenly():
    estimates, sizes, start = np.array([A, A, B, B]), np.ones(4, dtype=int), [[0, 1], [2, 3]]
    assert objective(improve(start, estimates, sizes, Limits(3, 2)), estimates, sizes) == pytest.approx(0)


def test_client_moves_to_an_empty_seat():
    # A, B, B against A: a swap only mirrors that, moving one B balances both groups.
    estimates, sizes = np.array([A, B, B, A]), np.ones(4, dtype=int)
    groups = improve([[0, 1, 2], [3]], estimates, sizes, Limits(1, 3))
    assert sorted(map(len, groups)) == [2, 2]
    assert objective(groups, estimates, sizes) == pytest.approx(0)


@pytest.mark.parametrize("groups", range(1, 12))
def test_everyone_meets_everyone_once(groups):
    meetings = []
    for left, right in tournament(groups):
        assert len({*left, *right}) == len(left) + len(right)  # nobody twice in a round
        meetings += [tuple(sorted(pair)) for pair in zip(left.tolist(), right.tolist(), strict=True)]
    assert sorted(meetings) == list(combinations(range(groups), 2))


def test_target_does_not_matter():
    # The identity that the module rests on, for a target that is far from the mean.
    rng = np.random.default_rng(0)
    estimates, sizes, target = rng.dirichlet(np.ones(4), 30), rng.integers(1, 9, 30), np.array([0.7, 0.1, 0.1, 0.1])

    def to_target(groups):
        means = [sizes[group] @ estimates[group] / sizes[group].sum() for group in groups]
        return sum(sizes[group].sum() * ((m - target) ** 2).sum() for group, m in zip(groups, means, strict=True))

    first, second = (cut(rng.permutation(30), sizes, Limits(20, 30)) for _ in range(2))
    change = objective(second, estimates, sizes) - objective(first, estimates, sizes)
    assert to_target(second) - to_target(first) == pytest.approx(change)


@given(seed=st.integers(0, 10**6), vectors=st.sampled_from(["probabilities", "weights", "equal"]))
@settings(max_examples=60, deadline=None)
def test_laws(seed, vectors):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(1, 40))
    sizes = rng.integers(0, 12, clients)
    sizes[0] += 1  # somebody holds something
    estimates = {
        "probabilities": rng.dirichlet(np.full(4, 0.3), clients),
        "weights": 1e3 * rng.normal(size=(clients, 6)),
        "equal": np.full((clients, 3), 1 / 3),
    }[vectors]
    limits = Limits(int(rng.integers(1, 30)), int(rng.integers(1, 7)))
    start = cut(rng.permutation(clients), sizes, limits)
    groups = improve(start, estimates, sizes, limits)
    assert sorted(client for group in groups for client in group) == list(range(clients))
    before, after = objective(start, estimates, sizes), objective(groups, estimates, sizes)
    assert after <= before * (1 + 1e-9) + 1e-9
    for old, new in zip(start, groups, strict=True):
        assert len(new) <= max(map(len, start))
        assert sizes[new].sum() >= min(sizes[old].sum(), limits.min_samples)
    assert improve(start, estimates, sizes, limits) == groups


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_savings_are_differences_of_the_objective(seed):
    rng = np.random.default_rng(seed)
    estimates, sizes, groups = rng.dirichlet(np.full(3, 0.3), 7), rng.integers(1, 50, 7), [[0, 1, 2], [3, 4], [5, 6]]
    seats = methods._seat(groups, estimates, sizes)
    savings, _ = methods._savings(seats, np.array([0]), np.array([2]), min_samples=1)
    before = objective(groups, estimates, sizes)
    for i, j in product(range(3), range(2)):
        swapped = [list(group) for group in groups]
        swapped[0][i], swapped[2][j] = swapped[2][j], swapped[0][i]
        assert savings[0, i, j] == pytest.approx(before - objective(swapped, estimates, sizes), abs=1e-9)
    moved = [[1, 2], [3, 4], [0, 5, 6]]
    assert savings[0, 0, 2] == pytest.approx(before - objective(moved, estimates, sizes), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_ends_where_no_swap_helps(seed):
    rng = np.random.default_rng(seed)
    estimates, sizes = rng.dirichlet(np.full(3, 0.3), 12), rng.integers(1, 9, 12)
    groups = improve([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], estimates, sizes, Limits(1, 3))
    best = objective(groups, estimates, sizes)
    for (g, h), i, j in product(combinations(range(4), 2), range(3), range(3)):
        swapped = [list(group) for group in groups]
        swapped[g][i], swapped[h][j] = swapped[h][j], swapped[g][i]
        assert objective(swapped, estimates, sizes) >= best - 1e-9


def test_blocks_of_pairs_do_not_matter(monkeypatch):
    counts, estimates = simulated.dirichlet_clients(0.5, np.random.default_rng(0))
    sizes, limits = counts.sum(axis=1), Limits(simulated.MIN_SAMPLES, simulated.MAX_CLIENTS)
    start = cut(range(len(sizes)), sizes, limits)
    monkeypatch.setattr(methods, "MAX_ROUNDS", 20)
    whole = improve(start, estimates, sizes, limits)
    monkeypatch.setattr(methods, "PAIRS_AT_ONCE", 7)
    assert improve(start, estimates, sizes, limits) == whole


def mean_quality(figure, counts, estimates, method, metric, seed):
    grouping = group_clients(
        estimates,
        counts.sum(axis=1),
        method=method,
        metric=metric,
        min_samples=simulated.MIN_SAMPLES,
        max_clients=simulated.MAX_CLIENTS,
        rng=np.random.default_rng(seed),
        probabilities=True,
        num_classes=simulated.CLASSES,
    )
    assert grouping.short == ()
    return quality(counts, grouping.groups).means()[figure]


@pytest.mark.parametrize("metric", [None, "kl"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noisy", [False, True])
def test_one_class_clients_reach_the_ceiling(noisy, seed, metric):
    # 500 clients in 62 groups: no more than 500 / 62 = 8.06 classes per group. Random groups have about 5.7.
    rng = np.random.default_rng(seed)
    counts, estimates = simulated.noisy_one_class_clients(rng) if noisy else simulated.one_class_clients()
    distinct = mean_quality("distinct", counts, estimates, "exchange", metric, seed)
    assert 7.9 <= distinct <= 500 / 62 + 1e-9
    assert mean_quality("distinct", counts, estimates, "random", None, seed) < 6.2


@pytest.mark.parametrize(("alpha", "margin"), [(0.2, 0.07), (0.5, 0.04)])
def test_better_balance_than_greedy_with_any_metric(alpha, margin):
    clients = [simulated.dirichlet_clients(alpha, np.random.default_rng(seed)) for seed in range(3)]

    def balance(method, metric):
        return np.mean(
            [
                mean_quality("balance", counts, estimates, method, metric, seed)
                for seed, (counts, estimates) in enumerate(clients)
            ]
        )

    best_greedy = max(balance("greedy", metric) for metric in METRICS)
    assert balance("exchange", None) > best_greedy + margin
