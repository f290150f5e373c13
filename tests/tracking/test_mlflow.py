from pathlib import Path

import pytest

from .runs import expected, killed_and_continued

pytest.importorskip("mlflow")


def test_a_file_store_holds_the_metrics_and_every_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = killed_and_continued(tmp_path / "run", "mlflow")
    client = MlflowClient((tmp_path / "run" / "tracking" / "mlflow").as_uri())
    (experiment,) = (found for found in client.search_experiments() if found.name == "fedseq")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["lr"] == "0.1"
    points = {
        name: sorted((point.step, point.value) for point in client.get_metric_history(tracked.info.run_id, name))
        for name in tracked.data.metrics
    }
    assert points == expected(run)
