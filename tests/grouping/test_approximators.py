"""Approximators: confidence vectors by hand, PCA against scikit-learn."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from threadpoolctl import threadpool_limits

from fedseq.basics.errors import FedSeqError
from fedseq.grouping import approximators
from fedseq.grouping.approximators import CONFIDENCES, confidence, official_confidence, reduce_weights

# Two classes, three exemplars of classes 0, 0, 1. Mean true-class logits: (1 + 3) / 2 = 2 for class 0, 1 for class 1.
LOGITS = np.array([[1.0, 9.0], [3.0, 9.0], [9.0, 1.0]])
LABELS = np.array([0, 0, 1])


def test_confidence_is_the_softmax_of_mean_true_class_logits():
    e = np.e
    np.testing.assert_allclose(confidence(LOGITS, LABELS), [e**2 / (e**2 + e), e / (e**2 + e)])


def test_official_confidence_is_the_share_of_true_class_probabilities():
    # Softmax with logits log 3 and log 1 gives 3/4 and 1/4; equal logits give 1/2.
    # Class 0 collects 3/4 + 1/2, class 1 collects 1/4: 5/4 and 1/4 of 3/2.
    logits = np.array([[np.log(3), 0.0], [5.0, 5.0], [np.log(3), 0.0]])
    np.testing.assert_allclose(official_confidence(logits, LABELS), [5 / 6, 1 / 6])


@pytest.mark.parametrize("variant", CONFIDENCES)
def test_all_clients_at_once_equals_one_by_one(variant):
    logits = np.random.default_rng(0).normal(size=(4, 6, 3))
    labels = np.array([0, 1, 2, 2, 1, 0])
    one_by_one = [CONFIDENCES[variant](client, labels) for client in logits]
    np.testing.assert_array_equal(CONFIDENCES[variant](logits, labels), one_by_one)
    np.testing.assert_allclose(np.sum(one_by_one, axis=1), 1)


@pytest.mark.parametrize("variant", CONFIDENCES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("error")
def test_diverged_client_is_all_nan_and_alone(variant, bad):
    logits = np.stack([LOGITS, LOGITS])
    logits[1, 2, 1] = bad
    estimates = CONFIDENCES[variant](logits, LABELS)
    assert np.isfinite(estimates[0]).all()
    assert np.isnan(estimates[1]).all()


@pytest.mark.parametrize("variant", CONFIDENCES)
def test_huge_logits_do_not_overflow(variant):
    estimate = CONFIDENCES[variant](LOGITS * 1e30, LABELS)
    assert not np.isinf(estimate).any()


@pytest.mark.parametrize("variant", CONFIDENCES)
def test_class_without_exemplar_is_refused(variant):
    with pytest.raises(FedSeqError, match="no example of class 2"):
        CONFIDENCES[variant](np.zeros((3, 3)), LABELS)


def clustered_rows(clients=40, weights=700):
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(5, weights))
    return (centres[rng.integers(5, size=clients)] + rng.normal(size=(clients, weights)) / 2 + 3).astype(np.float32)


@pytest.mark.parametrize("variance", [0.5, 0.9, 0.99])
def test_pca_agrees_with_scikit_learn(variance):
    from sklearn.decomposition import PCA

    rows = clustered_rows()
    reference = PCA(variance, svd_solver="full").fit_transform(rows.astype(float))
    reduced = reduce_weights(rows, variance)
    assert reduced.kept == reference.shape[1]
    np.testing.assert_allclose(pdist(reduced.vectors), pdist(reference), rtol=1e-8)
    np.testing.assert_allclose(np.abs(reduced.vectors), np.abs(reference), atol=1e-6)


def test_pca_by_hand():
    # Points -2, 0, 2 on the diagonal of the plane, around (1, 1): one component, distance sqrt(2) * 2 to the middle.
    rows = np.array([[3, 3], [1, 1], [-1, -1]], dtype=np.float32)
    reduced = reduce_weights(rows)
    np.testing.assert_allclose(reduced.vectors, [[np.sqrt(8)], [0], [-np.sqrt(8)]], atol=1e-12)
    assert (reduced.kept, reduced.possible, reduced.weights) == (1, 2, 2)


def test_pca_does_not_depend_on_the_chunks(monkeypatch):
    rows = clustered_rows()
    whole = reduce_weights(rows).vectors
    monkeypatch.setattr(approximators, "ELEMENTS_AT_ONCE", 40 * 64)  # 64 columns at a time
    np.testing.assert_allclose(reduce_weights(rows).vectors, whole, atol=1e-9)


def test_signs_are_determined_by_the_largest_entry():
    vectors = reduce_weights(clustered_rows()).vectors
    largest = np.abs(vectors).argmax(axis=0)
    assert (vectors[largest, np.arange(vectors.shape[1])] > 0).all()


@pytest.mark.parametrize("clients", [1, 2, 7])
@pytest.mark.filterwarnings("error")
def test_equal_rows_have_one_component_of_zeros(clients):
    rows = np.tile(np.linspace(0.1, 1, 50, dtype=np.float32), (clients, 1))
    np.testing.assert_array_equal(reduce_weights(rows).vectors, np.zeros((clients, 1)))


def test_diverged_clients_get_nan_and_do_not_change_the_others():
    rows = clustered_rows()
    rows[[3, 8], [0, 699]] = [np.nan, np.inf]
    others = np.delete(np.arange(len(rows)), [3, 8])
    reduced = reduce_weights(rows).vectors
    assert np.isnan(reduced[[3, 8]]).all()
    np.testing.assert_array_equal(reduced[others], reduce_weights(rows[others]).vectors)


def test_all_clients_diverged():
    assert np.isnan(reduce_weights(np.full((3, 5), np.nan, dtype=np.float32)).vectors).all()


def test_any_number_of_threads_gives_the_same_bits():
    """Eigenvectors too: with more threads LAPACK sums in another order."""
    rows = np.random.default_rng(0).standard_normal((500, 700)).astype(np.float32)
    with threadpool_limits(1):
        alone = reduce_weights(rows).vectors
    with threadpool_limits(2):
        assert np.array_equal(reduce_weights(rows).vectors, alone)
