"""Code names no device: on a GPU that only seems to be there, runs give the bits that they have on the CPU."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import fedseq
from fedseq.cli import main

from .marked_device import GPU, MarkedDevice

SMALL = {"dataset": "digits", "num_clients": 10, "rounds": 2, "fraction": 0.5, "engine": "serial", "kernels": "torch"}
RUNS: dict[str, dict[str, Any]] = {
    "superclients by confidence": {"algorithm": "fedseq", "pretrain_epochs": 1},
    "superclients by weights": {"algorithm": "fedseq", "approximator": "classifier-last", "pretrain_epochs": 1},
    "clients' memory": {"algorithm": "fedseq+scaffold", "grouping": "random"},
    "slots and an average": {"algorithm": "fedseqinter+feddyn+ema", "grouping": "random"},
    "a velocity, fedacg": {"algorithm": "fedseq+relay+fedacg+window", "grouping": "random"},
    "attackers and the gate": {"algorithm": "fedavg+median", "attack": "label-flip", "update_check": "exemplars"},
    "momentum and clipping": {"algorithm": "fedavg+fedadam", "momentum": 0.9, "max_grad_norm": 1.0},
    "a frozen part": {"algorithm": "fedavg", "model": "mlp", "trainable": "lora:2"},
    "crops and flips": {"algorithm": "fedavg", "augment": "crop-flip"},
    "noise": {
        "algorithm": "fedseq",
        "grouping": "random",
        "dp_clip_norm": 1.0,
        "dp_noise_multiplier": 1.0,
        "dp_mechanism": "visit",
    },
}


def test_what_a_gpu_refuses_is_refused() -> None:
    """Or else the tests below would show nothing."""
    with MarkedDevice():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        assert (there * 2).device == there[:1].device == here.to(there).device == GPU
        assert there.cpu().device == torch.device("cpu")
        with pytest.raises(RuntimeError, match="two devices in add"):
            there + here
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert float((there + torch.tensor(1.0)).sum()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_on_a_gpu_mixes_no_devices(case: str, workers: int | None, tmp_path: Path) -> None:
    """One chain after another in this process, or several at once in workers, where this one does not use the GPU."""
    options = {**SMALL, **RUNS[case]}
    place = {"engine": "processes", "workers": workers} if workers else {}
    with MarkedDevice() as here:
        fedseq.run({**options, **place, "device": "cuda", "rounds": 1}, tmp_path / "gpu")
        fedseq.resume(tmp_path / "gpu", rounds=2)  # with what a checkpoint holds
    assert bool(here.marked) == (workers is None)  # a GPU that is in use does not survive the start of workers
    fedseq.run(options, tmp_path / "cpu")
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert (tmp_path / "gpu" / name).read_bytes() == (tmp_path / "cpu" / name).read_bytes()


def test_a_loss_with_weights_goes_to_the_gpu_with_the_data(tmp_path: Path) -> None:
    pair = (torch.randn(8, 3), torch.arange(8) % 2)
    run = partial(
        fedseq.federate, lambda: torch.nn.Linear(3, 2), [pair, pair], pair, "fedavg", rounds=1, workers=1,
        loss=torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])),
    )  # fmt: skip
    with MarkedDevice():
        there = run(device="cuda", folder=tmp_path / "gpu")
    assert there.metrics == run(folder=tmp_path / "cpu").metrics


def test_workers_without_a_gpu_say_so_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        fedseq.FedSeqError, match=r"'cuda' cannot be used by worker processes: .*\. Use --device cpu\.$"
    ):
        fedseq.run({**SMALL, "engine": "processes", "workers": 2, "device": "cuda"}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_gpu_is_not_filled_with_a_worker_for_each_core() -> None:
    with pytest.raises(fedseq.FedSeqError, match=r"Choose how many: --workers 2, or --engine serial"):
        fedseq.run({**SMALL, "engine": "processes", "device": "cuda"})


def test_a_model_is_used_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fedseq.run({**SMALL, "algorithm": "fedavg"}, tmp_path / "run")
    with MarkedDevice():
        assert main(["evaluate", str(run.folder), "--device", "cuda"]) == 0
    assert f"accuracy {run.evaluations[-1][1]:.4f}" in capsys.readouterr().out
