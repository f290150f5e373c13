"""Runs on clients that exist, and how the model does for each of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.engines.serial import SerialEngine
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts
from fedseq.training.evaluation import client_spread
from fedseq.training.reporter import QUIET
from fedseq.training.sgd import build


def _table(path: Path, clients: int = 12, each: int = 10) -> str:
    """Points in the plane, of two classes; a client has seen one class for the most part."""
    rng = np.random.default_rng(3)
    lines = ["ward,a,b,label"]
    for client in range(clients):
        for number in range(each):
            label = (client % 2) if number else 1 - client % 2
            x = rng.normal(2 * label - 1, 1.0, 2)
            lines.append(f"ward-{client},{x[0]:.6f},{x[1]:.6f},{'ill' if label else 'well'}")
    path.write_text("\n".join(lines) + "\n")
    return f"csv:{path}"


OPTIONS: dict[str, Any] = {
    "clients_by": "ward", "algorithm": "fedseq", "grouping": "random", "rounds": 3, "eval_clients": 12,
    "holdout": 0.3,
}  # fmt: skip


def test_every_engine_finds_the_same_for_each_client(tmp_path: Path) -> None:
    source = _table(tmp_path / "a.csv")
    runs = {
        engine: fedseq.run(OPTIONS, tmp_path / engine, dataset=source, engine=engine)
        for engine in ("serial", "processes")
    }
    lines = {engine: (run.folder / "metrics.jsonl").read_bytes() for engine, run in runs.items()}
    assert lines["serial"] == lines["processes"]
    last = runs["serial"].metrics[-1]
    assert len(last["client_accuracies"]) == 12
    assert last["client_mean"] == pytest.approx(np.mean(last["client_accuracies"]))
    # Everybody has three held-out examples, so that the mean over clients is the mean over examples.
    assert last["client_mean"] == pytest.approx(last["accuracy"])
    assert json.loads((runs["serial"].folder / "clients.json").read_text())["names"][:2] == ["ward-0", "ward-1"]


def test_each_client_is_evaluated_on_its_own_examples(tmp_path: Path) -> None:
    """Against a count by hand: outputs of the whole test set, one client after another."""
    config = resolve({**OPTIONS, "dataset": _table(tmp_path / "a.csv"), "eval_clients": 5, "engine": "serial"})
    task = named_parts(config, QUIET).task
    model = build(task)
    found = SerialEngine(task).evaluate(model.vector)
    assert task.test.owner is not None
    numbers = sorted(set(task.test.owner.tolist()) - {-1})
    assert len(numbers) == 5
    with torch.no_grad():
        right = model.module.eval()(task.test.x).argmax(1) == task.test.y
    assert list(found.per_client) == [float(right[task.test.owner == number].double().mean()) for number in numbers]


def test_the_spread_over_clients_by_hand() -> None:
    """Of 0.0, 0.1, ..., 1.0 and 1.0: the worst tenth of 12 are 0.0 and 0.1, the middle ones 0.5 and 0.6."""
    accuracies = tuple(value / 10 for value in (*range(11), 10))
    found = client_spread(accuracies)
    mean = 6.5 / 12
    squares = sum((value - mean) ** 2 for value in accuracies)
    assert found["client_worst_decile"] == pytest.approx(0.05)
    assert found["client_median"] == pytest.approx(0.55)
    assert found["client_mean"] == pytest.approx(mean)
    assert found["client_std"] == pytest.approx((squares / 12) ** 0.5)
    assert client_spread((0.4,))["client_worst_decile"] == 0.4


def test_a_run_without_it_has_the_same_metrics_otherwise(tmp_path: Path) -> None:
    options = {**OPTIONS, "dataset": _table(tmp_path / "a.csv"), "rounds": 2, "engine": "serial"}
    plain = {name: value for name, value in options.items() if name != "eval_clients"}
    with_, without = fedseq.run(options, tmp_path / "with"), fedseq.run(plain, tmp_path / "without")
    for line, expected in zip(with_.metrics, without.metrics, strict=True):
        assert {
            name: value for name, value in line.items() if not name.startswith("client_") or name in expected
        } == expected
    assert without.final("client_mean") is None


def test_from_a_table_to_a_report_in_two_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = _table(Path("visits.csv"))
    words = ["--clients-by", "ward", "--rounds", "2", "--grouping", "random", "--eval-clients", "99"]
    assert main(["run", "--dataset", source, *words, "--out", "run"]) == 0
    assert main(["report", "run", "-o", "report.html"]) == 0
    assert "fedseq report" in Path("report.html").read_text()
    assert main(["resume", "run", "--rounds", "3"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert "over 12 clients: mean " in capsys.readouterr().out
    assert main(["compare", "run"]) == 0
    assert "worst decile" in capsys.readouterr().out
    assert main(["data", "show", "--dataset", source, "--clients-by", "ward", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["client,ill,well", "ward-0,1,7"]


def test_predicting_scales_new_examples_as_the_table_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Features of a thousand times the size: without the scale, every answer would be the same class."""
    source = Path(_table(tmp_path / "a.csv").removeprefix("csv:"))
    header, *rows = source.read_text().splitlines()
    large = [f"{w},{1000 * float(a) + 5000},{1000 * float(b)},{y}" for w, a, b, y in (row.split(",") for row in rows)]
    source.write_text("\n".join([header, *large]) + "\n")
    run = fedseq.run(OPTIONS, tmp_path / "run", dataset=f"csv:{source}", rounds=6, engine="serial")
    np.save("new.npy", np.array([[7000.0, 2000.0], [3000.0, -2000.0]], dtype=np.float32))
    assert main(["predict", str(run.folder), "new.npy"]) == 0
    printed = capsys.readouterr().out
    assert "ill" in printed
    assert "well" in printed


@pytest.mark.parametrize("options", [{"dataset": "smartwatch"}, {"dataset": "npz:a.npz", "clients_by": "ward"}])
def test_a_federation_of_nodes_has_its_clients_already(options: dict[str, str]) -> None:
    pytest.importorskip("flwr")
    from fedseq.flower.run_options import resolve_federation

    with pytest.raises(FedSeqError, match="in a federation each node is one"):
        resolve_federation({}, False, {**options, "num_clients": 4})


def test_clients_are_looked_at_only_where_the_test_set_has_clients(tmp_path: Path) -> None:
    np.savez("a.npz", x_train=np.zeros((4, 2)), y_train=[0, 1, 0, 1], client_train=[1, 1, 2, 2],
             x_test=np.zeros((2, 2)), y_test=[0, 1])  # fmt: skip
    with pytest.raises(FedSeqError, match="--eval-clients needs to know whose each test example is"):
        fedseq.run(dataset="npz:a.npz", clients_by="client", eval_clients=2, rounds=1)
    with pytest.raises(FedSeqError, match="--eval-clients has no effect in this run"):
        resolve({"dataset": "digits", "eval_clients": 2})
