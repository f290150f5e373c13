"""Every algorithm against its formulas, written down once more in NumPy (float64) and sharing no code with ours.

The model is a line, theta = (weight, bias), and client k's loss is half the mean squared error over its n_k points:
a quadratic with gradient A_k theta - b_k, exact because a batch holds all of a client's points. A visit is STEPS steps

    theta <- theta - LR * (A_k theta - b_k + pull * (theta - start) + constant + WD * theta)

where pull and constant are what the algorithm adds. Who was drawn and in which order is read from the run's metrics;
everything else is computed here. The evaluated model is compared in every round by its loss on a test set, and by its
weights after the last.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import fedseq
from fedseq.runs.reading import Run
from fitting import that_fit

from .toys import final_memory, final_state, final_weights, half_square, line, points, quadratic

CLIENTS = [  # unequal sizes, slopes and offsets: a wrong weight anywhere shows in the first digits
    points((1.0, 1.2), (-0.5, 0.4), (0.8, 1.5), (1.4, 0.2)),
    points((-1.2, 0.9)),
    points((0.3, -1.0), (1.1, -0.6), (-0.9, 0.7), (0.2, 0.1), (-1.3, 1.4), (0.6, -0.8)),
    points((0.9, 2.0), (-0.4, -1.1)),
    points((1.5, 0.3), (0.1, 0.6), (-0.7, -0.5)),
    points((0.5, -0.9), (-1.1, -1.6), (1.2, 0.8), (0.4, 0.4), (-0.2, 1.3)),
    points((-0.8, 0.5), (1.3, -1.2)),
]
TEST = points((0.0, 0.0), (1.0, 0.0), (-2.0, 1.0))
GROUPS = [(0, 3), (5, 1, 2), (4, 6)]  # 6, 12 and 5 examples
K = len(CLIENTS)
SIZE = np.array([len(x) for x, _ in CLIENTS])
QUADRATIC = [quadratic(client) for client in CLIENTS]
THETA = np.array([0.5, -0.25])
LR, WD, STEPS = 0.1, 0.02, 3
OPTIONS = {
    "lr": LR, "weight_decay": WD, "local_epochs": STEPS, "batch_size": 8, "rounds": 5, "seed": 3, "engine": "serial"
}  # fmt: skip

Chains = list[list[list[int]]]  # by round and unit, the clients in the order of their visits
Expected = Iterator[np.ndarray]  # the evaluated model after each round


def visit(start: np.ndarray, k: int, pull: float = 0.0, constant: np.ndarray | float = 0.0) -> np.ndarray:
    (A, b), theta = QUADRATIC[k], start
    for _ in range(STEPS):
        theta = theta - LR * (A @ theta - b + pull * (theta - start) + constant + WD * theta)
    return theta


def examples(chain: list[int]) -> int:
    return int(sum(SIZE[list(set(chain))]))


def average(models: list[np.ndarray], weights: list[int]) -> np.ndarray:
    return np.average(models, axis=0, weights=weights)


# --- the formulas ----------------------------------------------------------------------------------------------------


def averaging(chains: Chains, mu: float = 0.0, uniform: bool = False) -> Expected:
    """FedAvg, FedProx, FedSeq, FedSeq+FedProx: the anchor of the proximal term is the model a client was given."""
    theta = THETA
    for round_ in chains:
        ends = []
        for chain in round_:
            end = theta
            for k in chain:
                end = visit(end, k, pull=mu)
            ends.append(end)
        theta = average(ends, [1 if uniform else examples(chain) for chain in round_])
        yield theta


def scaffold(chains: Chains, option: int) -> Expected:
    theta, c, c_k = THETA, np.zeros(2), np.zeros((K, 2))
    for round_ in chains:
        ends, change = [], np.zeros(2)
        for chain in round_:
            end = theta
            for k in chain:
                start, old = end, c_k[k].copy()
                end = visit(start, k, constant=c - old)
                A, b = QUADRATIC[k]
                c_k[k] = A @ start - b if option == 1 else old - c + (start - end) / (STEPS * LR)
                change += c_k[k] - old
            ends.append(end)
        theta = average(ends, [examples(chain) for chain in round_])
        c = c + change / K
        yield theta


def feddyn(chains: Chains, alpha: float, linear: bool = True) -> Expected:
    theta, h, g = THETA, np.zeros(2), np.zeros((K, 2))
    for round_ in chains:
        ends = []
        for chain in round_:
            end = theta
            for k in chain:
                start = end
                end = visit(start, k, pull=alpha, constant=-g[k] if linear else 0.0)
                g[k] -= alpha * (end - start)
            ends.append(end)
        h = h - alpha / K * sum(end - theta for end in ends)
        theta = sum(ends) / len(ends) - h / alpha
        yield theta


def inter(chains: Chains, every: int, mu: float = 0.0) -> Expected:
    """FedSeqInter (+FedProx): between merges the mean is seen by nobody but the evaluation."""
    slots, weight = [THETA] * len(chains[0]), [0] * len(chains[0])
    for t, round_ in enumerate(chains, start=1):
        for i, chain in enumerate(round_):
            for k in chain:
                slots[i] = visit(slots[i], k, pull=mu)
            weight[i] += examples(chain)
        theta = average(slots, weight)
        if t % every == 0:
            slots, weight = [theta] * len(slots), [0] * len(slots)
        yield theta


def inter_feddyn(chains: Chains, every: int, alpha: float) -> Expected:
    slots, h, g = [THETA] * len(chains[0]), np.zeros(2), np.zeros((K, 2))
    for t, round_ in enumerate(chains, start=1):
        moved = np.zeros(2)
        for i, chain in enumerate(round_):
            slot_start = slots[i]
            for k in chain:
                start = slots[i]
                slots[i] = visit(start, k, pull=alpha, constant=-g[k])
                g[k] -= alpha * (slots[i] - start)
            moved += slots[i] - slot_start
        h = h - alpha / K * moved
        theta = sum(slots) / len(slots) - h / alpha
        if t % every == 0:
            slots = [theta] * len(slots)
        yield theta


def server_optimiser(chains: Chains, rule: str, lr: float, beta: float) -> Expected:
    """Reddi et al. 2021, algorithm 2 (beta_2 = 0.99, tau = 0.001, v starts at tau^2); Hsu et al. 2019 for FedAvgM."""
    theta, m, v = THETA, np.zeros(2), np.full(2, 1e-6)
    for round_ in chains:
        ends = [visit(theta, k) for [k] in round_]
        delta = average(ends, [examples(chain) for chain in round_]) - theta
        if rule == "fedavgm":
            m = beta * m + delta
            theta = theta + lr * m
        else:
            m = beta * m + (1 - beta) * delta
            adam, yogi = 0.99 * v + 0.01 * delta**2, v - 0.01 * delta**2 * np.sign(v - delta**2)
            v = adam if rule == "fedadam" else yogi
            theta = theta + lr * m / (np.sqrt(v) + 1e-3)
        yield theta


def inter_momentum(chains: Chains, every: int, lr: float, beta: float) -> Expected:
    """FedSeqInter+FedAvgM: a server step is made at merges; in between, the step that a merge would make is seen."""
    theta, m, slots, weight = THETA, np.zeros(2), [THETA] * len(chains[0]), [0] * len(chains[0])
    for t, round_ in enumerate(chains, start=1):
        for i, chain in enumerate(round_):
            for k in chain:
                slots[i] = visit(slots[i], k)
            weight[i] += examples(chain)
        step = beta * m + average(slots, weight) - theta
        seen = theta + lr * step
        if t % every == 0:
            theta, m, slots, weight = seen, step, [seen] * len(slots), [0] * len(slots)
        yield seen


# --- against the runs ------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, dict, Callable[[Chains], Expected]]] = {
    "fedavg": ("fedavg", {}, averaging),
    "fedprox": ("fedprox", {"mu": 0.7}, lambda c: averaging(c, mu=0.7)),
    "scaffold I": ("scaffold", {}, lambda c: scaffold(c, 1)),
    # Option II divides a distance by STEPS * LR and so holds weight decay's part of it too; the formula does likewise.
    "scaffold II": ("scaffold", {"scaffold_option": 2}, lambda c: scaffold(c, 2)),
    "feddyn": ("feddyn", {"alpha_dyn": 0.6}, lambda c: feddyn(c, 0.6)),
    "feddyn official": ("feddyn", {"alpha_dyn": 0.6, "authors_code": "feddyn"}, lambda c: feddyn(c, 0.6, linear=False)),
    "fairavg": ("fairavg", {}, lambda c: averaging(c, uniform=True)),
    "fedprox+fairavg": ("fedprox+fairavg", {"mu": 0.7}, lambda c: averaging(c, mu=0.7, uniform=True)),
    "fedavgm": ("fedavgm", {}, lambda c: server_optimiser(c, "fedavgm", 1.0, 0.9)),
    "fedavgm slow": (
        "fedavgm", {"server_lr": 0.5, "server_momentum": 0.4}, lambda c: server_optimiser(c, "fedavgm", 0.5, 0.4)
    ),
    "fedadam": ("fedadam", {"server_momentum": 0.8}, lambda c: server_optimiser(c, "fedadam", 0.01, 0.8)),
    "fedyogi": ("fedyogi", {"server_momentum": 0.8}, lambda c: server_optimiser(c, "fedyogi", 0.01, 0.8)),
    "fedseq": ("fedseq", {}, averaging),
    "fedseq, two passes": ("fedseq", {"superclient_epochs": 2}, averaging),
    "fedseq+fedprox": ("fedseq+fedprox", {"mu": 0.7}, lambda c: averaging(c, mu=0.7)),
    "fedseq+scaffold I": ("fedseq+scaffold", {}, lambda c: scaffold(c, 1)),
    "fedseq+scaffold II": ("fedseq+scaffold", {"scaffold_option": 2}, lambda c: scaffold(c, 2)),
    "fedseq+scaffold, two passes": ("fedseq+scaffold", {"superclient_epochs": 2}, lambda c: scaffold(c, 1)),
    "fedseq+feddyn": ("fedseq+feddyn", {"alpha_dyn": 0.6}, lambda c: feddyn(c, 0.6)),
    "fedseq+feddyn, two passes": (
        "fedseq+feddyn", {"alpha_dyn": 0.6, "superclient_epochs": 2}, lambda c: feddyn(c, 0.6)
    ),
    "fedseqinter": ("fedseqinter", {}, lambda c: inter(c, every=3)),  # N_S = 3
    "fedseqinter, merged every 2": ("fedseqinter", {"merge_every": 2}, lambda c: inter(c, every=2)),
    "fedseqinter+fedprox": ("fedseqinter+fedprox", {}, lambda c: inter(c, every=3, mu=1.0)),  # the default there
    "fedseqinter+feddyn": ("fedseqinter+feddyn", {}, lambda c: inter_feddyn(c, every=3, alpha=1.0)),  # as well
    "fedseqinter+fedavgm": ("fedseqinter+fedavgm", {}, lambda c: inter_momentum(c, every=3, lr=1.0, beta=0.9)),
}  # fmt: skip


def federate(folder, algorithm: str, **options) -> Run:
    """3 of 7 clients, or 2 of 3 superclients, a round."""
    return fedseq.federate(
        line, CLIENTS, TEST, algorithm, loss=half_square, folder=folder,
        **that_fit(algorithm, GROUPS, **{**OPTIONS, "fraction": 0.7 if "seq" in algorithm else 0.45, **options}),
    )  # fmt: skip


def loss_of(theta: np.ndarray) -> float:
    x, y = (tensor.double().numpy().ravel() for tensor in TEST)
    return 0.5 * float(np.mean((theta[0] * x + theta[1] - y) ** 2))


@pytest.mark.parametrize("case", CASES)
def test_rounds_by_the_formulas(tmp_path, case):
    algorithm, options, formulas = CASES[case]
    run = federate(tmp_path, algorithm, **options)
    chains = [record["clients"] for record in run.metrics]
    expected = list(formulas(chains))
    assert [record["loss"] for record in run.metrics] == pytest.approx([loss_of(t) for t in expected], abs=1e-6)
    assert final_weights(run) == pytest.approx(expected[-1], abs=1e-6)
    assert np.abs(expected[-1] - THETA).max() > 0.01, "a toy that stands still shows nothing"


def test_drawn_units_are_the_groups(tmp_path):
    """What the formulas above read from the metrics: every unit's chain visits exactly its group."""
    run = federate(tmp_path, "fedseq", rounds=4)
    for record in run.metrics:
        assert len(record["units"]) == len(set(record["units"])) == 2
        assert [set(chain) for chain in record["clients"]] == [set(GROUPS[unit]) for unit in record["units"]]
    assert {unit for record in run.metrics for unit in record["units"]} == {0, 1, 2}


@pytest.mark.parametrize("algorithm", ["feddyn", "fedseq+feddyn", "fedseqinter+feddyn"])
def test_feddyn_server_term_is_the_mean_of_the_clients_terms(tmp_path, algorithm):
    """Moves add up along a chain, so h = sum(g_k)/K after any number of rounds: neither side may lose its history."""
    run = federate(tmp_path, algorithm, alpha_dyn=0.6, superclient_epochs=2 if "seq" in algorithm else 1)
    memory = final_memory(run.folder)
    h = final_state(run.folder)["h"]
    assert h == pytest.approx(sum(kept["g"] for kept in memory.values()) / K, abs=1e-6)
    assert max(np.abs(kept["g"]).max() for kept in memory.values()) > 0.01


@pytest.mark.parametrize("algorithm", ["scaffold", "fedseq+scaffold", "fedseqinter+scaffold"])
def test_scaffold_server_variate_is_the_mean_of_the_clients(tmp_path, algorithm):
    run = federate(tmp_path, algorithm, superclient_epochs=2 if "seq" in algorithm else 1)
    memory = final_memory(run.folder)
    c = final_state(run.folder)["c"]
    assert c == pytest.approx(sum(kept["c"] for kept in memory.values()) / K, abs=1e-6)
    assert max(np.abs(kept["c"]).max() for kept in memory.values()) > 0.01


def test_feddyn_reports_the_uniform_mean_of_the_clients_too(tmp_path):
    """One round: theta = mean(theta_k) - h/alpha and h/alpha = -sum(theta_k - theta_0)/K. Both models are known."""
    run = federate(tmp_path, "feddyn", alpha_dyn=0.6, rounds=1)
    [drawn] = [[k for [k] in record["clients"]] for record in run.metrics]
    ends = [visit(THETA, k, pull=0.6) for k in drawn]
    assert final_state(run.folder)["client_mean"] == pytest.approx(sum(ends) / 3, abs=1e-6)
    assert final_weights(run) == pytest.approx(sum(ends) / 3 + sum(end - THETA for end in ends) / K, abs=1e-6)


def test_feddyn_accuracy_of_both_models_is_recorded(tmp_path):
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 4, generator=generator), torch.arange(6) % 3) for _ in range(3)]
    options = {"rounds": 2, "fraction": 1.0, "engine": "serial"}
    run = fedseq.federate(lambda: torch.nn.Linear(4, 3), clients, clients[0], "feddyn", folder=tmp_path, **options)
    assert all({"accuracy", "accuracy_client_mean"} <= record.keys() for record in run.metrics)


def test_centralized_is_one_run_of_momentum_sgd_on_a_cosine(tmp_path):
    """v <- 0.9 v + gradient, theta <- theta - lr_t v, lr_t = lr/2 (1 + cos(pi t/T)): one step an epoch, t = 0..T-1."""
    everything = (torch.cat([x for x, _ in CLIENTS]), torch.cat([y for _, y in CLIENTS]))
    run = fedseq.federate(
        line, [everything], TEST, "centralized",
        loss=half_square, lr=0.2, weight_decay=WD, batch_size=64, rounds=6, engine="serial", folder=tmp_path,
    )  # fmt: skip
    A, b = quadratic(everything)
    theta, velocity, losses = THETA, np.zeros(2), []
    for t in range(6):
        velocity = 0.9 * velocity + A @ theta - b + WD * theta
        theta = theta - 0.2 / 2 * (1 + np.cos(np.pi * t / 6)) * velocity
        losses.append(loss_of(theta))
    assert final_weights(run) == pytest.approx(theta, abs=1e-6)
    assert [record["loss"] for record in run.metrics] == pytest.approx(losses, abs=1e-6)


def test_local_momentum_decay_and_clip(tmp_path):
    """FedAvg with every option of local SGD: momentum from zero at each visit, lr * 0.8^t, gradients clipped to 0.5."""
    run = federate(tmp_path, "fedavg", momentum=0.6, lr_scheduler="exponential", lr_decay=0.8, max_grad_norm=0.5)
    theta = THETA
    for t, record in enumerate(run.metrics):
        ends = []
        for [k] in record["clients"]:
            (A, b), end, velocity = QUADRATIC[k], theta, np.zeros(2)
            for _ in range(STEPS):
                gradient = A @ end - b
                gradient = gradient * min(1.0, 0.5 / np.linalg.norm(gradient)) + WD * end
                velocity = 0.6 * velocity + gradient
                end = end - LR * 0.8**t * velocity
            ends.append(end)
        theta = average(ends, [examples(chain) for chain in record["clients"]])
    assert final_weights(run) == pytest.approx(theta, abs=1e-6)


def test_bytes_are_the_model_and_what_an_algorithm_sends_beside_it(tmp_path):
    """A line is 8 bytes each way and hop; SCAFFOLD sends c down and the change of c_k up."""
    for algorithm, each in (("fedavg", 8), ("feddyn", 8), ("scaffold", 16), ("fedseq", 8), ("fedseq+scaffold", 16)):
        run = federate(tmp_path / algorithm, algorithm, rounds=1)
        [record] = run.metrics
        hops = sum(len(chain) for chain in record["clients"])
        assert (record["bytes_down"], record["bytes_up"]) == (each * hops, each * hops), algorithm
        assert record["client_updates"] == hops
