from pathlib import Path
from typing import Any

import pytest

from .runs import Points, expected, killed_and_continued

pytest.importorskip("mlflow")


def read_back(store: Path) -> tuple[Points, Any]:
    """Every point of the only run in a file store, and that run, by the package's own reader."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store.as_uri())
    (experiment,) = (found for found in client.search_experiments() if found.name == "fedseq")
    (tracked,) = client.search_runs([experiment.experiment_id])
    points = {
        name: sorted((point.step, point.value) for point in client.get_metric_history(tracked.info.run_id, name))
        for name in tracked.data.metrics
    }
    return points, tracked


def test_a_file_store_holds_the_metrics_and_every_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = killed_and_continued(tmp_path / "run", "mlflow")
    points, tracked = read_back(tmp_path / "run" / "tracking" / "mlflow")
    assert points == expected(run)
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["lr"] == "0.1"
