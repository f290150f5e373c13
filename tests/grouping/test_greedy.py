"""The greedy method: picks worked out on paper, and the effect of reordering clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.grouping.methods import Limits, pick_groups
from fedseq.options.tables import METRICS

A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])


@pytest.mark.parametrize("metric", METRICS)
def test_takes_the_other_class_and_the_lowest_index_on_ties(metric):
    # Clients 0 and 1 hold class A, 2 and 3 class B. Group one starts with 0; 2 and 3 tie, so 2 joins.
    # The next first client, 2, is taken already; 1 opens group two and 3 joins.
    groups = pick_groups(np.array([A, A, B, B]), np.ones(4, dtype=int), Limits(2, 5), [0, 2, 1, 3], metric)
    assert groups == [[0, 2], [1, 3]]


def test_ties_that_rounding_hides_go_to_the_lowest_index():
    # The candidates mirror each other, so on paper they tie for a uniform group. In floating point the sums are taken
    # in another order and differ, which must not decide.
    first, one = np.full(3, 1 / 3), np.array([7, 6, 5]) / 18
    scores = METRICS["kl"].load()(first, np.stack([one, one[::-1]], axis=1), 0.5)
    assert scores[0] != scores[1]
    for candidates in ([one, one[::-1]], [one[::-1], one]):
        groups = pick_groups(np.array([first, *candidates]), np.ones(3, dtype=int), Limits(2, 2), [0, 1, 2], "kl")
        assert groups[0] == [0, 1]


def test_group_estimate_is_weighted_by_examples_or_runs_half_half():
    # Client 0 holds 3 examples of A, the others one each of B, A, B. First 1 joins (it ties with 3).
    # Weighted, the group is now (3/4, 1/4) and another B, client 3, suits it best.
    # Half-half, it is (1/2, 1/2); both A and B would make it (3/4, 1/4) or the mirror image, so 2 joins by index.
    estimates, sizes = np.array([A, B, A, B]), np.array([3, 1, 1, 1])
    assert pick_groups(estimates, sizes, Limits(5, 3), range(4), "gini") == [[0, 1, 3], [2]]
    assert pick_groups(estimates, sizes, Limits(5, 3), range(4), "gini", half=True) == [[0, 1, 2], [3]]


def test_third_client_makes_up_a_third_or_a_half():
    # Client 0 is joined by 1, making the squares of the mix 1/4 + 1/4. (2 would make .725^2 + .275^2 = .60, and 3 ties
    # with 1.) To (1/2, 1/2, 0), a third of client 3 gives (1/3, 1/3, 1/3) and squares 1/3, better than the .38 of 2.
    # Half of client 3 gives (1/4, 1/4, 1/2) and squares .375; half of 2 gives (.475, .25, .275) and .364, the better.
    estimates, sizes = np.array([[1, 0, 0], [0, 1, 0], [0.45, 0, 0.55], [0, 0, 1]]), np.ones(4, dtype=int)
    assert pick_groups(estimates, sizes, Limits(3, 3), range(4), "gini") == [[0, 1, 3], [2]]
    assert pick_groups(estimates, sizes, Limits(3, 3), range(4), "gini", half=True) == [[0, 1, 2], [3]]


def test_picks_though_all_scores_are_negative():
    # kl is never positive. The first group holds A, and B (client 2) beats another A (client 1): a search that starts
    # from score 0, as in the authors' code, would take client 1.
    assert pick_groups(np.array([A, A, B]), np.ones(3, dtype=int), Limits(2, 3), range(3), "kl")[0][:2] == [0, 2]


def test_clients_without_examples_do_not_count_in_the_mix():
    # Client 0 has no examples: the group's mean becomes that of client 1 at once, so that B, client 3, is next.
    estimates, sizes = np.array([B, A, A, B]), np.array([0, 1, 1, 1])
    groups = pick_groups(estimates, sizes, Limits(2, 4), range(4), "gini")
    assert groups[0][:3] == [0, 1, 3]


@pytest.mark.parametrize("metric", METRICS)
@given(seed=st.integers(0, 10**6), half=st.booleans())
@settings(max_examples=25)
def test_permuting_clients_permutes_the_groups(metric, seed, half):
    rng = np.random.default_rng(seed)
    estimates, sizes = rng.dirichlet(np.ones(5), 23), rng.integers(5, 20, 23)
    firsts, new_place = rng.permutation(23), rng.permutation(23)
    moved_estimates, moved_sizes = np.empty_like(estimates), np.empty_like(sizes)
    moved_estimates[new_place], moved_sizes[new_place] = estimates, sizes
    groups = pick_groups(estimates, sizes, Limits(40, 5), firsts, metric, half)
    moved = pick_groups(moved_estimates, moved_sizes, Limits(40, 5), new_place[firsts], metric, half)
    assert moved == [new_place[group].tolist() for group in groups]
