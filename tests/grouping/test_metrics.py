"""Metrics: cases worked out on paper, and agreement with independent scalar formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance
from scipy.stats import entropy, wasserstein_distance

from fedseq.options.tables import METRICS

GROUP = np.array([1.0, 0.0, 0.0])
SAME, NEXT, FAR = np.eye(3)
CLIENTS = np.stack([SAME, NEXT, FAR], axis=1)

# The group holds class 0 only; the clients hold class 0, 1 and 2. Each makes up half of the mix, which is one class
# for the first and one half on each of two classes for the others.
HAND_DERIVED = {
    "cosine": [0, 1, 1],  # parallel, then orthogonal
    "euclidean": [0, np.sqrt(2), np.sqrt(2)],
    "wasserstein": [0, 1, 2],  # the whole mass travels 0, 1 and 2 classes
    "kl": [-np.log(3), -np.log(3 / 2), -np.log(3 / 2)],  # log of the classes in the mix, less log 3
    "gini": [0, 1 / 2, 1 / 2],  # 1 - 1, then 1 - (1/4 + 1/4)
}


@pytest.mark.parametrize("name", METRICS)
def test_hand_derived(name):
    np.testing.assert_allclose(METRICS[name].load()(GROUP, CLIENTS, 0.5), HAND_DERIVED[name], atol=1e-12)


def test_mix_follows_the_share_of_each_client():
    # A client with 1/4 of the examples turns (1, 0, 0) into (3/4, 1/4, 0): Gini 1 - 9/16 - 1/16 = 3/8.
    # One with 1/2 gives 1/2, as above.
    clients = np.stack([NEXT, NEXT], axis=1)
    np.testing.assert_allclose(METRICS["gini"].load()(GROUP, clients, np.array([0.25, 0.5])), [3 / 8, 1 / 2])


def test_wasserstein_reads_absolute_values_as_masses():
    # |(-3, 1, 0)| / 4 = (3/4, 1/4, 0) against (0, 0, 1): cumulative 3/4, 1, 1 against 0, 0, 1, so 3/4 + 1.
    np.testing.assert_allclose(METRICS["wasserstein"].load()(np.array([-3.0, 1, 0]), FAR[:, None], 0.5), [1.75])


def test_zero_vectors_have_no_direction_and_give_no_nan():
    zero = np.zeros((3, 1))
    assert METRICS["cosine"].load()(GROUP, zero, 0.5) == [1.0]
    assert all(np.isfinite(row.load()(GROUP, zero, 0.5)).all() for row in METRICS.values())


def mixed(group, client, share):
    return (1 - share) * group + share * client


SCALAR = {
    "cosine": lambda g, c, s: distance.cosine(g, c),
    "euclidean": lambda g, c, s: distance.euclidean(g, c),
    "wasserstein": lambda g, c, s: wasserstein_distance(range(len(g)), range(len(g)), g, c),
    "kl": lambda g, c, s: -entropy(mixed(g, c, s), np.full(len(g), 1 / len(g))),
    "gini": lambda g, c, s: 1 - sum(x * x for x in mixed(g, c, s)),
}


@st.composite
def cases(draw):
    classes, clients = draw(st.integers(2, 12)), draw(st.integers(1, 6))
    values = draw(arrays(float, (classes, clients + 1), elements=st.floats(0.01, 1)))
    shares = draw(arrays(float, clients, elements=st.floats(0.05, 0.95)))
    vectors = values / values.sum(axis=0)
    return vectors[:, 0], vectors[:, 1:], shares


@pytest.mark.parametrize("name", METRICS)
@given(case=cases())
def test_agrees_with_scalar_formula(name, case):
    group, clients, shares = case
    expected = [SCALAR[name](group, client, share) for client, share in zip(clients.T, shares, strict=True)]
    np.testing.assert_allclose(METRICS[name].load()(group, clients, shares), expected, atol=1e-9)


def test_every_metric_has_a_scalar_formula():
    assert SCALAR.keys() == HAND_DERIVED.keys() == METRICS.keys()
