"""group_clients and criteria: laws for every method, bad input, and the rules for what fits together."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedseq.basics.errors import FedSeqError
from fedseq.grouping import group_clients
from fedseq.grouping.methods import deal
from fedseq.options.tables import (
    APPROXIMATORS,
    METHODS,
    METRICS,
    check_criterion,
    default_metric,
    valid_criteria,
    valid_metrics,
)

PAIRS = [(m, t, p) for m in METHODS for p in (True, False) for t in valid_metrics(m, p)]


def group(estimates, sizes, *, method="greedy", metric="kl", probabilities=True, seed=0, **options):
    limits = {"min_samples": 2, "max_clients": 3, "num_classes": 3} | options
    rng = np.random.default_rng(seed)
    return group_clients(
        estimates, np.asarray(sizes), method=method, metric=metric, rng=rng, probabilities=probabilities, **limits
    )


@pytest.mark.parametrize(("method", "metric", "probabilities"), PAIRS)
@given(seed=st.integers(0, 10**6), estimate=st.sampled_from(["mean", "half"]))
@settings(max_examples=10, deadline=None)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_laws(method, metric, probabilities, seed, estimate):
    rng = np.random.default_rng(seed)
    clients, classes = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    sizes = rng.integers(0, 12, clients)
    max_clients = int(rng.integers(1, 7))
    reach = int(np.sort(sizes)[-max_clients:].sum())
    assume(reach > 0)
    min_samples = int(rng.integers(1, reach + 1))
    estimates = rng.dirichlet(np.full(classes, 0.3), clients) if probabilities else rng.normal(size=(clients, classes))
    lost = rng.random(clients) < 0.1
    estimates[lost] = np.nan

    def run():
        return group(
            estimates, sizes, method=method, metric=metric, probabilities=probabilities, seed=seed, estimate=estimate,
            min_samples=min_samples, max_clients=max_clients, num_classes=classes,
        )  # fmt: skip

    result = run()
    assert sorted(client for members in result.groups for client in members) == list(range(clients))
    assert all(1 <= len(members) <= max_clients for members in result.groups)
    assert all(list(members) == sorted(members) for members in result.groups)
    examples = [sizes[list(members)].sum() for members in result.groups]
    assert result.short == tuple(i for i, total in enumerate(examples) if total < min_samples)
    assert result.unknown == tuple(np.flatnonzero(lost))
    assert run() == result


def test_seeds_matter():
    estimates = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    for method, metric, probabilities in PAIRS:
        results = {group(estimates, np.ones(30), method=method, metric=metric, probabilities=probabilities, seed=s)
                   for s in range(5)}  # fmt: skip
        assert len(results) > 1, (method, metric)


def test_kmeans_deals_one_of_each_cluster_in_turn():
    # Cluster 0 has clients 0-1, cluster 7 has 2-4. Turns: one of each, one of each, then what is left of cluster 7.
    for seed in range(5):
        order = deal(np.array([0, 0, 7, 7, 7]), np.random.default_rng(seed)).tolist()
        assert set(order[0:4:2]) == {0, 1}
        assert {*order[1:4:2], order[4]} == {2, 3, 4}
    assert len({tuple(deal(np.array([0, 0, 7, 7, 7]), np.random.default_rng(seed))) for seed in range(20)}) > 5


def test_kmeans_mixes_well_separated_clusters():
    # Six clients at each of two corners and groups of two: with one of each corner in turn, every group has both.
    estimates = np.repeat(np.eye(2), 6, axis=0)
    result = group(estimates, np.ones(12), method="kmeans", metric="euclidean", num_classes=2)
    assert all(len(members) == 2 and members[0] < 6 <= members[1] for members in result.groups)


def test_random_ignores_the_estimates_and_fills_in_shuffled_order():
    sizes = np.ones(7)
    result = group(None, sizes, method="random", metric=None)
    assert result == group(np.zeros((7, 3)), sizes, method="random", metric=None)
    order = np.random.default_rng(0).permutation(7)
    pairs = [set(order[0:2]), set(order[2:4]), set(order[4:6])]
    pairs[0].add(order[6])  # the last one alone is short; the first of three equal groups takes it
    assert [set(members) for members in result.groups] == pairs


def test_unknown_clients_count_as_uniform():
    # From (1, 0, 0) it is .82 to the uniform vector, .90 to client 1, 1 to a vector of zeros.
    estimates = np.array([[1, 0, 0], [0.364, 0.636, 0], [np.nan, 0, 0]])
    filled = np.array([[1, 0, 0], [0.364, 0.636, 0], [1 / 3, 1 / 3, 1 / 3]])
    for seed in range(6):
        result = group(estimates, np.ones(3), metric="euclidean", max_clients=2, seed=seed)
        assert result.unknown == (2,)
        assert result.groups == group(filled, np.ones(3), metric="euclidean", max_clients=2, seed=seed).groups


def test_unknown_clients_count_as_the_overall_mean_of_weights():
    # The mean of the known, weighted by examples, is (0 * 1 + 4 * 3) / 4 = 3.
    estimates, sizes = np.array([[0.0], [4.0], [np.inf]]), [1, 3, 1]
    options = {"metric": "euclidean", "probabilities": False, "max_clients": 2}
    for seed in range(4):
        filled = group(np.array([[0.0], [4.0], [3.0]]), sizes, seed=seed, **options)
        assert group(estimates, sizes, seed=seed, **options).groups == filled.groups


DEGENERATE: dict[str, tuple] = {
    "one class": (np.ones((6, 1)), np.ones(6)),
    "equal estimates": (np.full((6, 3), 1 / 3), np.ones(6)),
    "nothing known": (np.full((6, 3), np.nan), np.ones(6)),
    "clients without examples": (np.full((6, 3), 1 / 3), [0, 0, 5, 0, 1, 0]),
    "one client": (np.full((1, 3), 1 / 3), [4]),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize(("method", "metric", "probabilities"), PAIRS)
@pytest.mark.filterwarnings("error")
def test_degenerate_input_is_grouped(case, method, metric, probabilities):
    estimates, sizes = DEGENERATE[case]
    result = group(estimates, sizes, method=method, metric=metric, probabilities=probabilities)
    assert sorted(client for members in result.groups for client in members) == list(range(len(sizes)))


THREE = np.full((3, 3), 1 / 3)
BAD_INPUT = {
    "no clients": (lambda: group(np.zeros((0, 3)), []), "no clients"),
    "negative size": (lambda: group(THREE, [1, -2, 1]), "client 1 has -2"),
    "min_samples 0": (lambda: group(THREE, [1, 1, 1], min_samples=0), "at least 1, not 0 and 3"),
    "max_clients 0": (lambda: group(THREE, [1, 1, 1], max_clients=0), "at least 1, not 2 and 0"),
    "out of reach": (lambda: group(THREE, [5, 4, 3], min_samples=10, max_clients=2), "Lower min_samples to 9"),
    "no examples": (lambda: group(THREE, [0, 0, 0]), "together have 0"),
    "too few estimates": (lambda: group(THREE, [1, 1, 1, 1]), "do not fit 4 clients"),
    "flat estimates": (lambda: group(np.ones(3), [1, 1, 1]), "do not fit 3 clients"),
    "no estimates": (lambda: group(None, [1, 1, 1]), "needs an estimate"),
    "unknown method": (lambda: group(THREE, [1, 1, 1], method="greed"), "Did you mean 'greedy'"),
    "unknown metric": (lambda: group(THREE, [1, 1, 1], metric="l2"), "unknown metric 'l2'"),
    "unknown estimate": (lambda: group(THREE, [1, 1, 1], estimate="third"), "Valid: half, mean"),
    "kl on weights": (lambda: group(THREE, [1, 1, 1], probabilities=False), "cosine, euclidean, wasserstein"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused(case):
    call, message = BAD_INPUT[case]
    with pytest.raises(FedSeqError, match=message):
        call()


def test_valid_criteria_are_accepted_and_distinct():
    # random; for confidence: kmeans, five metrics with greedy, exchange; for each of three classifiers: kmeans,
    # three metrics, exchange.
    criteria = list(valid_criteria())
    assert len(criteria) == len(set(criteria)) == 1 + 7 + 3 * 5
    for criterion in criteria:
        check_criterion(*criterion)


@pytest.mark.parametrize("approximator", APPROXIMATORS)
@pytest.mark.parametrize("method", METHODS)
def test_invalid_metrics_are_refused_with_the_valid_ones(approximator, method):
    valid = valid_metrics(method, APPROXIMATORS[approximator].probabilities)
    for metric in {None, *METRICS} - set(valid):
        with pytest.raises(FedSeqError) as error:
            check_criterion(approximator, metric, method)
        assert str(error.value).endswith(f"Valid metrics: {', '.join(name or 'none' for name in valid)}.")


@pytest.mark.parametrize("approximator", APPROXIMATORS)
@pytest.mark.parametrize("method", METHODS)
def test_default_metric_is_valid(approximator, method):
    check_criterion(approximator, default_metric(approximator, method), method)


def test_defaults_are_those_of_the_paper():
    assert default_metric("confidence", "greedy") == "kl"
    assert default_metric("classifier-all", "greedy") == "cosine"
    assert default_metric("confidence", "kmeans") == "euclidean"
    assert default_metric(None, "random") is None


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (("confidenc", "kl", "greedy"), "Did you mean 'confidence'"),
        (("confidence", "kl", "greddy"), "Did you mean 'greedy'"),
        (("confidence", "cosin", "greedy"), "Did you mean 'cosine'"),
        ((None, "kl", "greedy"), "needs an approximator"),
    ],
)
def test_unknown_names_are_refused(criterion, message):
    with pytest.raises(FedSeqError, match=message):
        check_criterion(*criterion)
