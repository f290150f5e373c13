"""Early stopping: when a run ends for want of a better evaluation, and that its best model is kept to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted
from fedseq.cli import main
from fedseq.options.ending import Best, best_of, ends, far_enough
from fedseq.options.resolve import resolve
from fedseq.runs.reading import Run

from .test_experiment import StopAfter

# A learning rate at which accuracy goes up and down, so that the best round is not the last.
OPTIONS: dict[str, Any] = {
    "dataset": "digits", "algorithm": "fedavg", "num_clients": 20, "lr": 0.3, "rounds": 60, "engine": "serial",
    "checkpoint_every": 2, "patience": 3,
}  # fmt: skip


def records(*accuracies: float | None) -> list[dict[str, Any]]:
    return [{"round": round_, "accuracy": value, "loss": None} for round_, value in enumerate(accuracies, 1)]


@pytest.mark.parametrize(
    ("accuracies", "end"),
    [
        ((0.1, 0.2, 0.2, 0.1), 4),  # the best is round 2's, the first of equals, and 4 - 2 = 2
        ((0.1, 0.2, 0.1, 0.3, 0.1, 0.2), 6),
        ((0.1, None, None, 0.2, None, None, 0.1), 7),  # only evaluations end a run
        ((0.1, 0.2, 0.3), None),
        ((0.1, 0.2, 0.1), None),
    ],
)
def test_a_run_ends_two_rounds_after_its_best(accuracies: tuple[float | None, ...], end: int | None) -> None:
    config, metrics = resolve({"rounds": 50, "patience": 2}), records(*accuracies)
    ending = [line["round"] for n, line in enumerate(metrics) if ends(config, line, best_of(metrics[: n + 1]))]
    assert ending == ([end] if end else [])
    assert far_enough(config, metrics) == bool(end)


def test_where_targets_are_not_classes_the_lowest_loss_is_best() -> None:
    metrics = [{"round": n, "accuracy": None, "loss": loss} for n, loss in enumerate((3.0, None, 1.0, 2.0), 1)]
    assert best_of(metrics) == Best(3, -1.0)


def files_of(folder: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "weights.safetensors", "weights-best.safetensors", "SHA256SUMS")
    found = {name: (folder / name).read_bytes() for name in names}
    sums = found["SHA256SUMS"].splitlines()  # two files tell of this computer and its clock
    return {
        **found,
        "SHA256SUMS": b"\n".join(line for line in sums if not line.endswith((b"timing.jsonl", b"environment.json"))),
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fedseq.run(OPTIONS, tmp_path_factory.mktemp("patience") / "run")


def test_the_best_model_is_kept(whole: Run, capsys: pytest.CaptureFixture[str]) -> None:
    accuracies = dict(whole.evaluations)
    best = max(accuracies, key=lambda round_: (accuracies[round_], -round_))
    assert whole.rounds == best + 3 < 60
    assert whole.finished
    assert main(["evaluate", str(whole.folder), "--best"]) == 0
    assert f"accuracy {accuracies[best]:.4f}" in capsys.readouterr().out
    assert main(["export", str(whole.folder), "--best", "--format", "torchscript"]) == 0
    exported = torch.jit.load(whole.folder / "model-best.pt").state_dict().values()
    assert all(any(torch.equal(kept, tensor) for tensor in exported) for kept in whole.weights(best=True).values())
    assert any(not torch.equal(tensor, whole.weights()[name]) for name, tensor in whole.weights(best=True).items())


def test_who_waits_is_told_why_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rate that is too small to change any answer: the first evaluation is the best, and two rounds later it ends."""
    words = "--dataset digits --algorithm fedavg --lr 1e-9 --num-clients 5 --rounds 9 --engine serial --patience 2"
    assert main(["run", *words.split(), "--out", str(tmp_path / "run")]) == 0
    assert "stopped, as nothing better came for 2 rounds: the model of round 1, the best" in capsys.readouterr().out


def test_it_is_the_model_of_that_round(whole: Run, tmp_path: Path) -> None:
    found = best_of(whole.metrics)
    assert found is not None
    alone = fedseq.run({**OPTIONS, "patience": None, "rounds": found.round}, tmp_path / "run")
    assert all(torch.equal(tensor, alone.weights()[name]) for name, tensor in whole.weights(best=True).items())
    with pytest.raises(FedSeqError, match="runs with --patience keep the best model"):
        alone.weights(best=True)


@pytest.mark.parametrize("before_the_end", [1, 2])
def test_interrupted_it_ends_with_the_same_bytes(whole: Run, tmp_path: Path, before_the_end: int) -> None:
    """Ctrl-C after the best round, and as after a kill: without the last checkpoint."""
    with pytest.raises(Interrupted):
        fedseq.run(OPTIONS, tmp_path / "run", reporter=StopAfter(whole.rounds - before_the_end))
    newest = max((tmp_path / "run" / "checkpoints").glob("*.json"))
    newest.unlink()
    fedseq.resume(tmp_path / "run")
    assert files_of(tmp_path / "run") == files_of(whole.folder)


def test_a_lost_best_model_is_written_again_from_the_checkpoint(tmp_path: Path) -> None:
    run = fedseq.run(OPTIONS, tmp_path / "run")
    before = files_of(run.folder)
    (run.folder / "weights-best.safetensors").unlink()
    fedseq.resume(run.folder)
    assert files_of(run.folder) == before


def test_more_patience_goes_on_and_none_at_all_is_another_run(tmp_path: Path) -> None:
    run = fedseq.run(OPTIONS, tmp_path / "run")
    assert fedseq.resume(run.folder, rounds=100).rounds == run.rounds  # it is not for want of rounds that it ended
    longer = fedseq.resume(run.folder, patience=6)
    asked_at_once = fedseq.run({**OPTIONS, "patience": 6}, tmp_path / "six")
    assert (
        files_of(longer.folder)["weights-best.safetensors"]
        == files_of(asked_at_once.folder)["weights-best.safetensors"]
    )
    plain = fedseq.run({**OPTIONS, "patience": None, "rounds": 1}, tmp_path / "plain")
    assert not (plain.folder / "weights-best.safetensors").exists()
    with pytest.raises(FedSeqError, match="--patience None -> 3"):
        fedseq.resume(plain.folder, rounds=3, patience=3)


def test_the_best_of_an_average_is_the_average(tmp_path: Path) -> None:
    """With +window it is the mean of models that is evaluated, and so it is what is kept."""
    data = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]
    run = fedseq.federate(
        lambda: nn.Linear(3, 1), data, data[0], "fedavg+window", loss=nn.functional.mse_loss, folder=tmp_path / "run",
        rounds=4, patience=10, lr=0.01, window=2, engine="serial",
    )  # fmt: skip
    found = best_of(run.metrics)
    assert found is not None
    weights, (x, y) = run.weights(best=True), data[0]
    loss = nn.functional.mse_loss(x @ weights["weight"].T + weights["bias"], y)
    assert float(loss) == pytest.approx(-found.score, rel=1e-5)
