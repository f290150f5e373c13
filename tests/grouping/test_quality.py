"""Quality figures of superclients, by hand."""

import numpy as np
import pytest

from fedseq.grouping import quality

# Three classes. Clients 0 and 1 together have 4, 2, 2 examples, client 2 has one class, client 3 nothing.
COUNTS = np.array([[4, 0, 1], [0, 2, 1], [0, 5, 0], [0, 0, 0]])


def test_by_hand():
    result = quality(COUNTS, [(0, 1), (2,), (3,)])
    np.testing.assert_allclose(result.balance, [2 / 4, 0, 0])
    np.testing.assert_allclose(result.covered, [1, 1 / 3, 0])
    np.testing.assert_array_equal(result.distinct, [3, 1, 0])
    np.testing.assert_array_equal(result.examples, [8, 5, 0])
    np.testing.assert_array_equal(result.clients, [2, 1, 1])
    assert result.means() == pytest.approx(
        {"balance": 1 / 6, "covered": 4 / 9, "distinct": 4 / 3, "examples": 13 / 3, "clients": 4 / 3}
    )
    assert result.fewest_classes == 0
    assert quality(COUNTS, [(0, 1), (2, 3)]).fewest_classes == 1


@pytest.mark.filterwarnings("error")
def test_no_groups_at_all():
    assert quality(COUNTS, []).means() == dict.fromkeys(["balance", "covered", "distinct", "examples", "clients"], 0.0)
    assert quality(COUNTS, []).fewest_classes == 0
