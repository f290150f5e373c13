"""SIGKILL, after which nobody closes anything: the resumed run goes on in the same tracked runs, every point once."""

from pathlib import Path

import pytest

from . import test_mlflow, test_tensorboard, test_wandb
from .runs import expected, killed_at_once_and_continued


@pytest.mark.slow
def test_a_run_that_was_killed_at_once_has_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "run" / "tracking"
    wanted = expected(killed_at_once_and_continued(tmp_path / "run", "tensorboard+wandb+mlflow"))

    points, tracked = test_mlflow.read_back(place / "mlflow")
    assert points == wanted
    assert tracked.info.run_id == (place / "mlflow-id").read_text().strip()
    assert tracked.info.status == "FINISHED"

    (file,) = (place / "wandb").glob("offline-run-*/run-*.wandb")
    points, name = test_wandb.read_back(file)
    assert points == wanted
    assert name == (place / "wandb-id").read_text().strip()

    found = test_tensorboard.read_back(place / "tensorboard", wanted)
    assert found == test_tensorboard.in_float32(wanted)
