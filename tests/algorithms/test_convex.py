"""Where several local steps lead: FedAvg to a biased point, SCAFFOLD and FedDyn to the optimum of the federation.

Four clients of equal size whose losses are quadratics with different curvature A_k and different optima. The optimum
of their mean is theta* = (sum A_k)^-1 sum b_k. Local SGD from theta with FedDyn's quadratic term alpha/2 |. - theta|^2
(alpha = 0: FedAvg) is a linear map: with H = A_k + alpha I, `steps` steps move the model by

    P_k (b_k - A_k theta),   P_k = (I - (I - lr H)^steps) H^-1,

so the mean stands still where sum P_k (b_k - A_k theta) = 0. That is theta* only if all P_k are alike: after a few
steps steep clients are nearly done, while flat ones have hardly moved. It is where FedAvg ends, and also where FedDyn
ends if its linear term gives no gradient, as in the `official` variant.
"""

import numpy as np
import pytest

import fedseq
from fitting import that_fit

from .toys import final_weights, half_square, line, points, quadratic

CLIENTS = [
    points((1.6, 2.0), (-1.4, -1.0)),
    points((0.9, 1.8), (-0.7, 1.4)),
    points((1.0, -1.0), (-0.8, 0.9)),
    points((-1.6, 0.5), (1.2, -1.7)),
]
LR, STEPS, ALPHA = 0.4, 4, 1.0
QUADRATIC = [quadratic(client) for client in CLIENTS]
OPTIMUM = np.linalg.solve(sum(A for A, _ in QUADRATIC), sum(b for _, b in QUADRATIC))


def biased_point(alpha: float) -> np.ndarray:
    slope, offset = np.zeros((2, 2)), np.zeros(2)
    for A, b in QUADRATIC:
        H = A + alpha * np.eye(2)
        P = (np.eye(2) - np.linalg.matrix_power(np.eye(2) - LR * H, STEPS)) @ np.linalg.inv(H)
        slope, offset = slope + P @ A, offset + P @ b
    return np.linalg.solve(slope, offset)


def limit(folder, algorithm: str, groups=((0,), (1,), (2,), (3,)), clients=CLIENTS, **options) -> np.ndarray:
    run = fedseq.federate(
        line, clients, CLIENTS[0], algorithm, loss=half_square, fraction=1.0, lr=LR, weight_decay=0.0,
        local_epochs=STEPS, engine="serial", folder=folder,
        **that_fit(algorithm, groups, **{"rounds": 40, "eval_every": 1000, "alpha_dyn": ALPHA, **options}),
    )  # fmt: skip
    return final_weights(run)


def to_optimum(theta: np.ndarray) -> float:
    return float(np.linalg.norm(theta - OPTIMUM))


def test_fedavg_ends_at_its_biased_point(tmp_path):
    assert to_optimum(biased_point(0.0)) > 0.1
    assert limit(tmp_path, "fedavg") == pytest.approx(biased_point(0.0), abs=1e-5)


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_reaches_the_optimum(tmp_path, option):
    assert to_optimum(limit(tmp_path, "scaffold", scaffold_option=option)) < 1e-4


def test_feddyn_reaches_the_optimum(tmp_path):
    assert to_optimum(limit(tmp_path, "feddyn")) < 1e-4


def test_feddyn_whose_linear_term_has_no_gradient_does_not(tmp_path):
    assert to_optimum(biased_point(ALPHA)) > 0.1
    assert limit(tmp_path, "feddyn", authors_code="feddyn") == pytest.approx(biased_point(ALPHA), abs=1e-4)


def test_scaffold_and_feddyn_count_clients_alike_and_fedavg_counts_examples(tmp_path):
    """Client 3 holds its points three times over: the same loss, a larger weight in FedAvg's mean."""
    x, y = CLIENTS[3]
    clients = [*CLIENTS[:3], (x.repeat(3, 1), y.repeat(3, 1))]
    assert to_optimum(limit(tmp_path / "scaffold", "scaffold", clients=clients)) < 1e-4
    assert to_optimum(limit(tmp_path / "feddyn", "feddyn", clients=clients)) < 1e-4
    assert np.linalg.norm(limit(tmp_path / "fedavg", "fedavg", clients=clients) - biased_point(0.0)) > 0.1


def test_feddyn_in_chains_reaches_the_optimum_where_fedseq_does_not(tmp_path):
    """When all models stand still, g_k is client k's gradient and h = sum(g_k)/K = 0: that is the optimum again.

    The order of a chain is drawn anew in each round, so plain FedSeq does not settle; it stays away.
    """
    pairs = ((0, 1), (2, 3))
    assert to_optimum(limit(tmp_path / "fedseq", "fedseq", pairs)) > 0.05
    assert to_optimum(limit(tmp_path / "feddyn", "fedseq+feddyn", pairs, rounds=80)) < 1e-3
