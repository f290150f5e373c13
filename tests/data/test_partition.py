"""Who holds what, for every alpha and number of clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.data.partition import label_counts, partition_clients

ALPHAS = (0.0, 1e-3, 1e-2, 0.1, 0.2, 0.5, 1.0, 10.0, 1e3, 1e5, float("inf"))


def labels_of(examples: int, classes: int) -> np.ndarray:
    return seeds.generator(1, "labels").permutation(np.arange(examples) % classes)


def deal(labels, num_clients, alpha, partition=None, seed=0, of_authors=False):
    rng = seeds.generator(seed, "partition")
    return partition_clients(labels, num_clients, alpha, rng, partition, of_authors)


def assert_given_once(clients, examples):
    assert np.array_equal(np.sort(np.concatenate(clients)), np.arange(examples))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    alpha=st.sampled_from(ALPHAS),
    num_clients=st.integers(1, 10_000),
    spare=st.integers(0, 2_000),
    classes=st.integers(1, 100),
)
def test_every_example_is_given_once_and_sizes_differ_by_at_most_one(alpha, num_clients, spare, classes):
    labels = labels_of(num_clients + spare, min(classes, num_clients + spare))
    clients = deal(labels, num_clients, alpha)
    assert len(clients) == num_clients
    assert_given_once(clients, len(labels))
    sizes = [len(client) for client in clients]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=15, deadline=None)
@given(alpha=st.sampled_from(ALPHAS[1:]), num_clients=st.integers(1, 400), spare=st.integers(0, 400))
def test_official_gives_every_example_once_whatever_the_sizes(alpha, num_clients, spare):
    labels = labels_of(num_clients + spare, 10)
    assert_given_once(deal(labels, num_clients, alpha, of_authors=True), len(labels))


def test_shards_of_balanced_classes_hold_one_class_each():
    counts = label_counts(*_dealt(500, 10, 50, 0.0))
    assert (np.count_nonzero(counts, axis=1) == 1).all()
    assert (counts.sum(0) == 50).all()


def test_shards_across_a_class_border_hold_two_classes():
    # 9 examples of 3 classes over 2 clients: sorted 000111222 is cut after 00011.
    counts = label_counts(*_dealt(9, 3, 2, 0.0))
    assert counts.tolist() == [[3, 2, 0], [0, 1, 3]]


def _dealt(examples, classes, num_clients, alpha):
    labels = labels_of(examples, classes)
    return labels, deal(labels, num_clients, alpha), classes


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.01, 0.9, 1.0), (1.0, 0.2, 0.45), (1e5, 0.1, 0.17)])
def test_alpha_is_the_skew(alpha, low, high):
    # The largest of 10 shares: near 1 when alpha is tiny, E[max Dir(1)] = H_10 / 10 = 0.293, near 1/10 when it is huge.
    # Clients that come last take what remains, so the mean is over the first half.
    labels = labels_of(50_000, 10)
    counts = label_counts(labels, deal(labels, 250, alpha)[:125], 10)
    assert low < (counts.max(1) / counts.sum(1)).mean() < high


def test_hsu_follows_a_client_that_wants_one_class_only_until_it_is_used_up():
    # Two classes with 10 examples each, tiny alpha: a client takes one class. Three clients of 6, 7, 7: the third (or
    # second) must mix, because no class has room for two whole clients.
    labels = np.repeat([0, 1], 10)
    counts = label_counts(labels, deal(labels, 3, 1e-3), 2)
    assert counts.sum(0).tolist() == [10, 10]
    assert (counts[0] == 0).any()


@pytest.mark.parametrize("seed", range(4))
def test_official_spread_is_the_best_of_many_draws(seed):
    """The sizes of 100 draws from the same numbers, written down anew: 10 classes of 200, 20 clients full at 100.

    Where the last clients are full, the sum of the shares before them is 1 or, in floats, a little less: then one
    example of the class goes to the last. So sizes may differ by 10; those of other draws differ by 35 and more.
    """
    rng = seeds.generator(seed, "partition")
    draws = [_official_sizes(rng) for _ in range(100)]
    best = int(np.argmin(np.std(draws, axis=1)))
    assert best > 0  # one draw would not do
    sizes = np.array([len(client) for client in deal(labels_of(2_000, 10), 20, 0.5, seed=seed, of_authors=True)])
    apart = np.abs(np.array(draws) - sizes).max(1)
    assert apart[best] <= 10
    assert sorted(apart)[1] >= 35


def _official_sizes(rng: np.random.Generator) -> list[int]:
    """Of a class a client gets from floor(200 F) to floor(200 F'), F and F' the shares of those before it and with it.

    A Gamma(1/2) is a Gamma(3/2) times the square of a uniform number; these over their sum are Dir(1/2).
    """
    held = [0] * 20
    for _ in range(10):
        rng.permutation(np.arange(200))  # which examples they are
        gammas = rng.standard_gamma(1.5, 20) * rng.random(20) ** 2
        wanted = [gamma if size < 100 else 0.0 for gamma, size in zip(gammas, held, strict=True)]
        ends = [math.floor(200 * math.fsum(wanted[: n + 1]) / math.fsum(wanted)) for n in range(19)] + [200]
        held = [size + end - begin for size, begin, end in zip(held, [0, *ends], ends, strict=False)]
    return held


def test_same_seed_same_clients_and_another_seed_others():
    labels = labels_of(1_000, 10)
    first, again, other = (np.concatenate(deal(labels, 20, 0.5, seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("num_clients", "alpha"), [(0, 0.5), (101, 0.5), (10, -0.1), (10, float("nan"))])
def test_impossible_partitions_are_refused(num_clients, alpha):
    with pytest.raises(FedSeqError, match=r"--num-clients|--alpha"):
        deal(labels_of(100, 10), num_clients, alpha)
