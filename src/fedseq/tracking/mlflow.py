"""MLflow, in files below RUN/tracking/mlflow; MLFLOW_TRACKING_URI names another store or a server.

A continued run goes on in the same MLflow run: points that are there already are not written again.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.tracking import keep_name, kept_name

EXPERIMENT = "fedseq"


class MLflow:
    def __init__(self, place: Path, title: str, options: Mapping[str, Any]):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent that nobody asked for
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or _local_store(place / "mlflow"))
        known = place / "mlflow-id"
        found = self._find(kept_name(known))
        self.run: str = found or keep_name(known, self._create(title, options))
        self.there = self._points() if found else {}
        self.client.update_run(self.run, status="RUNNING")

    def _find(self, run: str | None) -> str | None:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_run(run).info.run_id if run else None
        except MlflowException:  # another store than last time
            return None

    def _create(self, title: str, options: Mapping[str, Any]) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self.client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self.client.create_experiment(name)
        run: str = self.client.create_run(number, run_name=title).info.run_id
        self.client.log_batch(run, params=[Param(option, str(value)) for option, value in options.items()])
        return run

    def _points(self) -> dict[str, set[int]]:
        """The rounds that are there already, by metric: a kill may fall between two metrics of a round."""
        names = self.client.get_run(self.run).data.metrics
        return {name: {point.step for point in self.client.get_metric_history(self.run, name)} for name in names}

    def write(self, round_: int, scalars: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        new = [name for name in scalars if round_ not in self.there.get(name, ())]
        self.client.log_batch(self.run, [Metric(name, scalars[name], now, round_) for name in new])

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run, status="FINISHED" if finished else "KILLED")


def _local_store(folder: Path) -> str:
    """MLflow calls its file store old, and asks who wants it to say so; its database needs many more packages."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    links = [path for path in folder.rglob("*") if path.is_symlink()] if folder.exists() else []
    if links:
        raise FedSeqError(f"{links[0]} is a symbolic link, and nothing is written through links. Remove it.")
    return folder.absolute().as_uri()
