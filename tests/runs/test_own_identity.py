"""Runs made in Python: a changed one is not continued in silence, and different ones are not compared as the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import fedseq
from fedseq import FedSeqError
from fedseq.algorithms import centralized, fedprox, fedseqinter
from fedseq.report.convergence import by_dataset, find_bound
from fedseq.report.series import make_series


class Net(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(4, 2), factor

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.factor


class Other(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.tanh())


def smooth(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def clients(seed: int = 0, count: int = 3) -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(count, 12, 4, generator=torch.Generator().manual_seed(seed))
    return [(part, torch.arange(12) % 2) for part in x]


def go(folder: str, model: Callable[..., nn.Module] = Net, algorithm: Any = "fedavg", **options: Any) -> fedseq.Run:
    given = options.pop("clients", clients())
    usual = {"rounds": 1, "engine": "serial"} | ({} if algorithm == "centralized" else {"fraction": 1.0})
    return fedseq.federate(model, given, given[0], algorithm, folder=folder, **{**usual, **options})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": Other}, "a model whose code was another"),
        ({"model": lambda: Net(factor=2.0)}, "a model whose code was another"),
        ({"loss": smooth}, "a model with another loss"),
        ({"algorithm": fedprox(0.1)}, "with other options: --algorithm"),
        ({"clients": clients(seed=1)}, "other data"),
    ],
)
def test_a_changed_run_is_not_continued(change: dict[str, Any], words: str) -> None:
    go("run")
    assert go("run", rounds=2).rounds == 2
    with pytest.raises(FedSeqError, match=words):
        go("run", **{"rounds": 3, **change})


def test_a_changed_number_in_a_closure_is_another_model() -> None:
    def made(factor: float) -> Callable[[], nn.Module]:
        return lambda: Net(factor)

    go("run", made(1.0))
    with pytest.raises(FedSeqError, match="whose code was another"):
        go("run", made(2.0), rounds=2)


WEIGHT, SETTINGS, CRITERION = torch.ones(2), {"smooth": 0.0}, nn.CrossEntropyLoss()


def by_globals(outputs: Tensor, targets: Tensor) -> Tensor:
    smooth = SETTINGS["smooth"]
    return nn.functional.cross_entropy(outputs, targets, WEIGHT, label_smoothing=smooth) + CRITERION(outputs, targets)


def test_a_loss_that_fails_leaves_nothing_behind() -> None:
    with pytest.raises(FedSeqError, match="cannot take a client's examples") as failed:
        go("run", loss=nn.Sequential())
    assert torch.is_grad_enabled()
    assert failed  # and with it whatever was under way


def test_what_a_loss_was_made_with_is_part_of_it() -> None:
    """PyTorch prints little of it and holds none in its state."""
    go("run", loss=nn.CrossEntropyLoss())
    assert go("run", loss=nn.CrossEntropyLoss().eval(), rounds=2).rounds == 2
    for changed in (nn.CrossEntropyLoss(label_smoothing=0.5), nn.CrossEntropyLoss(ignore_index=0)):
        with pytest.raises(FedSeqError, match="another loss"):
            go("run", loss=changed, rounds=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("WEIGHT", torch.tensor([1.0, 2.0])), ("SETTINGS", {"smooth": 0.5}),
     ("CRITERION", nn.CrossEntropyLoss(label_smoothing=0.5))],
)  # fmt: skip
def test_what_a_loss_reads_is_part_of_it(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go("run", loss=by_globals)
    assert go("run", loss=by_globals, rounds=2).rounds == 2
    monkeypatch.setitem(globals(), name, value)
    with pytest.raises(FedSeqError, match="another loss"):
        go("run", loss=by_globals, rounds=3)


def test_an_object_takes_the_options_that_its_name_takes() -> None:
    with pytest.raises(FedSeqError, match="--superclients-per-chain has no effect in this run"):
        go("run", algorithm=fedseqinter(), grouping="random", superclients_per_chain=2)
    with pytest.raises(FedSeqError, match="algorithm='centralized' by its name"):
        go("run", algorithm=centralized())
    assert not Path("run").exists()
    assert (
        go(
            "run", algorithm=fedseq.algorithms.fedseq(), grouping="random", superclients_per_chain=2
        ).config.superclients_per_chain
        == 2
    )


def test_runs_on_different_data_are_not_compared() -> None:
    """One data set dealt in another order is the same; a bound is one of the same data only."""
    data = clients()
    runs = [
        go("a", clients=data), go("b", clients=[data[0], *data[:0:-1]]), go("central", algorithm="centralized"),
        go("c", clients=clients(seed=1)),
    ]  # fmt: skip
    found = by_dataset(runs)
    assert [[run.folder.name for run in members] for members in found.values()] == [["a", "b", "central"], ["c"]]
    assert all(name.startswith("own (") for name in found)
    bound = find_bound([*found.values()][1])
    assert bound is None or not bound.central


def test_other_hyper_parameters_are_not_other_seeds() -> None:
    runs = [go(f"{mu}-{seed}", algorithm=fedprox(mu), seed=seed) for mu in (0.1, 5.0) for seed in (0, 1)]
    runs.append(go("other", Other, algorithm=fedprox(0.1), seed=2))
    assert [[run.folder.name for run in one.runs] for one in make_series(runs)] == [
        ["0.1-0", "0.1-1"], ["5.0-0", "5.0-1"], ["other"],
    ]  # fmt: skip
    assert len({one.label for one in make_series(runs)}) == 3


def test_options_of_an_algorithm_that_was_given_as_an_object_are_refused() -> None:
    with pytest.raises(FedSeqError, match=r"--mu has no effect in this run: the algorithm is given as an object"):
        go("run", algorithm=fedprox(0.5), mu=9)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("algorithm", "groups", "words"),
    [
        ("fedavg", [[0, 1, 2]], "groups are for algorithms with superclients"),
        ("fedseq", [[0, 1]], "groups leave out client 2, which would count as a client and never be trained"),
        ("fedseq", [[0]], "groups leave out client 1 and 1 more"),
        ("fedseq", [[0, 1], [1, 2]], "client 1 more than once"),
    ],
)
def test_groups_that_mean_something_else_are_refused(algorithm: str, groups: list[list[int]], words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        go("run", algorithm=algorithm, groups=groups)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "fedseq", "groups": [[0, 1], [2]], "max_clients": 3}, "max_clients has no effect"),
        ({"algorithm": "fedseq", "groups": [[0, 1], [2]], "min_samples": 3}, "min_samples has no effect"),
        ({"num_clients": 5}, "clients are given, so that num_clients has no effect"),
        ({"clients": [(x, y.float()) for x, y in clients()], "target_accuracy": 0.5}, "target_accuracy is for classes"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        go("run", **options)
    assert not Path("run").exists()


def test_clients_without_examples_and_examples_that_are_not_there() -> None:
    pair = clients()[0]
    for held, words in (([[0, 1], [12]], "client 1 names an example that is not there"), ([[], []], "no client holds")):
        with pytest.raises(FedSeqError, match=words):
            fedseq.federate(Net, [np.array(part, int) for part in held], pair, "fedavg", data=pair, folder="run")
    with pytest.raises(FedSeqError, match="seed"):
        fedseq.federate(
            Net, lambda number: number % 3, None, "fedavg", data=TensorDataset(*pair), seed="abc", folder="run"
        )
    assert not Path("run").exists()
