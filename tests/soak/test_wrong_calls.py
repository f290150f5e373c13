"""Hundreds of wrong calls of `federate`: a sentence each, never a traceback from inside, and no folder begun."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import fedseq
from fedseq.basics.errors import FedSeqError

X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
PAIR = (X, Y)
CLIENTS = [PAIR, PAIR]
cross_entropy = nn.functional.cross_entropy

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def net() -> nn.Module:
    return nn.Linear(4, 3)


class Net(nn.Module):
    """A linear layer whose output is changed by a function."""

    def __init__(self, change: Any, layer: Any = nn.Linear) -> None:
        super().__init__()
        self.layer, self.change = layer(4, 3), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x))


MODELS: dict[str, Any] = {
    "detached": lambda: Net(Tensor.detach), "tuple": lambda: Net(lambda x: (x,)), "mean": lambda: Net(torch.mean),
    "raises": lambda: Net(lambda x: 1 / 0), "complex": lambda: Net(lambda x: torch.complex(x, x)), "none": None,
    "lazy": lambda: nn.LazyLinear(3), "module": nn.Linear(4, 3), "word": "mlp", "gives none": lambda: None,
    "three arguments": lambda a, b, c: net(), "number": 3, "meta": lambda: nn.Linear(4, 3, device="meta"),
    "two outputs": lambda: nn.Linear(4, 2), "no parameters": nn.Identity, "keyword": lambda *, k: net(),
}  # fmt: skip
LOSSES: dict[str, Any] = {
    "none": None, "float": lambda o, y: 1.0, "detached": lambda o, y: cross_entropy(o, y).detach(), "class": nn.MSELoss,
    "constant": lambda o, y: torch.tensor(1.0, requires_grad=True), "mse": nn.MSELoss(), "l1": nn.functional.l1_loss,
    "argmax": lambda o, y: (o.argmax(1) != y).float().mean(), "item": lambda o, y: cross_entropy(o, y).item(),
    "vector": lambda o, y: cross_entropy(o, y, reduction="none"), "no arguments": lambda: 1, "one": lambda o: o.sum(),
    "gives none": lambda o, y: None, "word": "ce", "int": lambda o, y: torch.tensor(3), "raises": lambda o, y: 1 / 0,
    "tuple": lambda o, y: (o.sum(), 1), "complex": lambda o, y: torch.complex(o.sum(), o.sum()),
    "bce": nn.BCEWithLogitsLoss(),
}  # fmt: skip
EXAMPLES: dict[str, Any] = {
    "unequal": (X, Y[:5]), "three": (X, Y, Y), "dict": {"x": X, "y": Y}, "objects": (np.array([None] * 3), Y[:3]),
    "gradient": (X.clone().requires_grad_(), Y), "bool": (X, Y > 1), "two dimensions": (X, Y[:, None]),
    "negative": (X, Y - 1), "nan": (X * float("nan"), Y), "words": (["a"] * 12, Y), "sparse": (X.to_sparse(), Y),
    "complex": (X + 0j, Y), "scalar": (torch.tensor(1.0), torch.tensor(1)), "no y": (X, None), "none": None,
    "ragged": ([[1.0], [1.0, 2.0]], [0, 1]), "empty": (X[:0], Y[:0]), "sets": ({1, 2}, {0, 1}), "class": TensorDataset,
    "huge label": (X, Y + 10**12), "meta": (X.to("meta"), Y), "nested": [PAIR, PAIR], "one dimension": (X[:, 0], Y),
    "no features": (X[:, :0], Y), "numpy scalars": (np.zeros(()), np.zeros(())), "records": (np.zeros(12, "f4,f4"), Y),
    "dates": (np.array(["2020-01-01"] * 12, "M8[D]"), Y), "number": 3, "word": "abc", "tensor": X, "array": X.numpy(),
    "other shape": (X[:, :2], Y), "doubles": (X.double(), Y), "integers": (X.long(), Y),
}  # fmt: skip
INDICES: dict[str, Any] = {
    "mask": [torch.ones(12).bool()], "floats": [[0.0, 1.0]], "set": [{0, 1}], "2-d": [np.zeros((2, 2), int)],
    "negative": [[-1]], "beyond": [[12]], "none": None, "none inside": [None, [1]], "words": ["ab"], "dict": {0: [1]},
    "objects": [np.array([0, None])], "empty": [[]], "ragged": [[[0], [1, 2]]], "two owners": [0, 1], "bytes": b"abc",
    "halves": [0.5, 1.5], "nan": [float("nan")] * 12, "nobody": [None] * 12, "generator": iter([[0]]), "word": "who",
    "float tensor": [torch.ones(3)], "nested": [[[[0]]]], "no dimension": torch.tensor(1), "no argument": lambda: 0,
    "raises": lambda i: 1 / 0, "gives none": lambda i: None, "gives lists": lambda i: [i], "complex": [[1j]],
    "huge": [[10**30]], "dates": [np.array(["2020"], "M8[Y]")], "number": 3, "frozen set": frozenset([1]),
}  # fmt: skip
GROUPS: dict[str, Any] = {
    "number": 3, "none inside": [None], "words": ["ab"], "floats": [[0.0, 1.0]], "dict": {0: [0, 1]}, "empty": [],
    "truth": [[True, False]], "negative": [[-1, 0]], "beyond": [[0, 9]], "nested": [[[0, 1]]], "sets": [{0, 1}],
    "set of words": {"a"}, "missing": [[0]], "twice": [[0, 1], [1]], "word": "01",
}  # fmt: skip
OWNERS: dict[str, Any] = {
    "short": ["a"], "number": 3, "nan": [float("nan")] * 12, "nobody": [None] * 12, "2-d": np.zeros((12, 2)),
    "dict": {1: 2}, "word": "abababababab", "set": set("ab"), "generator": iter("ab"),
}  # fmt: skip
OPTIONS: dict[str, list[Any]] = {
    "rounds": ["x", -1, 1.5, [1], {}, np.array([1]), True, np.bool_(True)], "lr": ["a", [0.1], float("nan"), -1, 1j],
    "seed": ["a", -1, [0]], "folder": [3, ["a"], b"x", "\0"], "algorithm": [3, None, "nope", "", "fedseq:x", []],
    "dataset": ["digits"], "data_dir": ["x"], "num_clients": [3], "clients_by": ["x"], "nope": [1],
    "reporter": [3, "x"],
    "holdout": [0.2, "a", -1, 2, [1]], "holdout_by": ["x", None, 3], "label_column": ["x", 3], "device": ["x", 3],
    "trainable": ["lora:2", "x", 3], "eval_clients": [2, "x"], "fraction": [2, 0, "x"],
    "workers": ["x", 0], "alpha": [1], "augment": ["crop-flip", "x"],
}  # fmt: skip


def calls() -> Iterator[Call]:
    for name, model in MODELS.items():
        yield f"model {name}", (model, CLIENTS, PAIR, "fedavg"), {}
        yield f"model {name}, by owner", (model, [0, 1, 2] * 4, None, "fedavg"), {"data": PAIR}
    for name, loss in LOSSES.items():
        for algorithm in ("fedavg", "fedseq"):
            yield f"loss {name}, {algorithm}", (net, CLIENTS, PAIR, algorithm), {"loss": loss, "grouping": "random"}
    for name, examples in EXAMPLES.items():
        yield f"client {name}", (net, [PAIR, examples], PAIR, "fedavg"), {}
        yield f"test {name}", (net, CLIENTS, examples, "fedavg"), {}
        yield f"data {name}", (net, [[0, 1]], PAIR, "fedavg"), {"data": examples}
        if name != "nested":  # two clients
            yield f"clients {name}", (net, examples, PAIR, "fedavg"), {}
        if name not in ("doubles", "integers", "huge label"):  # which are made float32 and numbered there
            yield f"owned {name}", (net, [0, 1] * 6, PAIR, "fedavg"), {"data": examples}
    for name, indices in INDICES.items():
        for test in (PAIR, None):
            yield f"indices {name}, {test is None}", (net, indices, test, "fedavg"), {"data": PAIR}
        yield (
            f"indices {name}, set",
            (net, indices, PAIR, "fedseq"),
            {"data": TensorDataset(*PAIR), "grouping": "random"},
        )
    for name, groups in GROUPS.items():
        for algorithm in ("fedseq", "fedavg", "fedseqinter"):
            yield f"groups {name}, {algorithm}", (net, CLIENTS, PAIR, algorithm), {"groups": groups}
        yield f"groups {name}, indices", (net, [[0], [1]], PAIR, "fedseq"), {"groups": groups, "data": PAIR}
    for name, owners in OWNERS.items():
        for options in ({}, {"eval_clients": 2}):
            yield f"owners {name}, {options}", (net, CLIENTS, PAIR, "fedavg"), {"test_clients": owners, **options}
    for name, values in OPTIONS.items():
        for value in values:
            given = {name: value} if name != "algorithm" else {}
            algorithm = value if name == "algorithm" else "fedavg"
            yield f"option {name}={value!r}", (net, CLIENTS, PAIR, algorithm), given
            if name not in ("holdout", "holdout_by", "label_column", "eval_clients"):
                yield f"{name}={value!r}, by owner", (net, [0, 1, 2] * 4, None, algorithm), {"data": PAIR, **given}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wrong_calls_are_a_sentence_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: "Counter[str]"
) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("a run was begun")

    monkeypatch.setattr("fedseq.api.federate.execute", begun)
    found = []
    for number, (name, arguments, options) in enumerate(calls()):
        folder = tmp_path / str(number)
        try:
            fedseq.federate(*arguments, **{"rounds": 1, "engine": "serial", "folder": folder, **options})
            outcome = "taken"
        except FedSeqError:
            outcome = "folder begun" if folder.exists() else "refused"
        except AssertionError as error:
            outcome = str(error)
        except Exception as error:  # noqa: BLE001 - a traceback, which is what is looked for
            outcome = f"{type(error).__name__}: {error}"
        counts["refused" if outcome == "refused" else "not refused"] += 1
        if outcome != "refused":
            found.append(f"{name}: {outcome}")
    assert not found
    assert counts["refused"] >= 400
