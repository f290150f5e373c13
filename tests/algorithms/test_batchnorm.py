"""Models with BatchNorm: buffers are the mean weighted by examples, and nothing else ever touches them.

The expected numbers come from a plain torch loop over the clients (torch.optim.SGD, state_dict in, state_dict out),
followed by the formulas for one round. In the first round SCAFFOLD's and the server rules' clients train as FedAvg's.
"""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fedseq
from fedseq.basics import seeds
from fitting import that_fit

from .toys import half_square

SIZES = [5, 7, 1, 8]  # in batches of 4: 5 (the last one joins), 4+3, 1 (no variance of its own), 4+4
K, BATCH, LR, WD, SEED = len(SIZES), 4, 0.1, 0.05, 2
PULL = 0.6  # mu of FedProx and alpha of FedDyn
PARAMETERS = ("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias")
BUFFERS = ("1.running_mean", "1.running_var")
State = dict[str, Tensor]


def model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def make_clients() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 2, generator=generator) + k, torch.randn(n, 1, generator=generator) - k)
        for k, n in enumerate(SIZES)
    ]


CLIENTS = make_clients()


def train(start: nn.Module, k: int, pull: float = 0.0) -> State:
    """One epoch of client k in round 1."""
    module = copy.deepcopy(start).train()
    if SIZES[k] == 1:
        module[1].eval()  # type: ignore[index]
    optimiser = torch.optim.SGD(module.parameters(), lr=LR, weight_decay=WD)
    anchor = [parameter.detach().clone() for parameter in module.parameters()]
    first = sum(SIZES[:k])  # clients hold consecutive parts of the training set
    order = seeds.generator(SEED, "train", 1, k, 0).permutation(np.arange(first, first + SIZES[k])) - first
    cuts = {5: [], 7: [4], 1: [], 8: [4]}[SIZES[k]]
    for batch in np.split(order, cuts):
        optimiser.zero_grad()
        half_square(module(CLIENTS[k][0][batch]), CLIENTS[k][1][batch]).backward()
        for parameter, before in zip(module.parameters(), anchor, strict=True):
            assert parameter.grad is not None
            parameter.grad += pull * (parameter.detach() - before)
        optimiser.step()
    return module.state_dict()


def mean(states: list[State], name: str, weights: list[int]) -> np.ndarray:
    return np.average([state[name].double().numpy() for state in states], axis=0, weights=weights)


def federate(folder, algorithm: str) -> State:
    run = fedseq.federate(
        model, CLIENTS, CLIENTS[0], algorithm, loss=half_square, fraction=1.0, lr=LR, weight_decay=WD, seed=SEED,
        batch_size=BATCH, rounds=1, engine="serial", folder=folder,
        **that_fit(algorithm, mu=PULL, alpha_dyn=PULL, server_lr=0.5, server_momentum=0.9),
    )  # fmt: skip
    return load_file(run.folder / "weights.safetensors")


RULES = [
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "fairavg",
    "fedavgm",
    "fedadam",
    "fedyogi",
    "fedacg",
    "ghbm",
    "ema",
    "window",
]


@pytest.mark.parametrize("algorithm", RULES)
def test_first_round(tmp_path, algorithm):
    start = model()
    ends = [train(start, k, PULL if algorithm in ("fedprox", "feddyn") else 0.0) for k in range(K)]
    found = federate(tmp_path, algorithm)
    for name in BUFFERS:
        assert found[name].numpy() == pytest.approx(mean(ends, name, SIZES), abs=1e-6), name
    for name in PARAMETERS:
        old = start.state_dict()[name].double().numpy()
        expected = mean(ends, name, [1] * K if algorithm in ("feddyn", "fairavg") else SIZES)
        moved = expected - old
        if algorithm == "feddyn":  # all take part, so h/alpha = -(mean - old)
            expected = expected + moved
        if algorithm == "fedavgm":
            expected = old + 0.5 * moved
        if algorithm in ("fedadam", "fedyogi"):  # v starts at 1e-6
            v = 0.99e-6 + 0.01 * moved**2
            if algorithm == "fedyogi":
                v = 1e-6 - 0.01 * moved**2 * np.sign(1e-6 - moved**2)
            expected = old + 0.5 * 0.1 * moved / (np.sqrt(v) + 1e-3)
        # A bias before BatchNorm moves by rounding errors only, which adaptive rules enlarge a thousandfold.
        loose = name == "0.bias" and algorithm in ("fedadam", "fedyogi")
        assert found[name].numpy() == pytest.approx(expected, abs=1e-4 if loose else 2e-6), name


def test_one_example_client_leaves_the_statistics_alone(tmp_path):
    """Alone in its federation, it trains the parameters and hands the buffers on as they were."""
    one = CLIENTS[2]
    options = {"loss": half_square, "fraction": 1.0, "rounds": 3, "engine": "serial"}
    run = fedseq.federate(model, [one], one, "scaffold", folder=tmp_path, **options)
    found = load_file(run.folder / "weights.safetensors")
    assert found["1.running_mean"].tolist() == [0.0] * 3
    assert found["1.running_var"].tolist() == [1.0] * 3
    assert not torch.equal(found["2.bias"], model().state_dict()["2.bias"])
