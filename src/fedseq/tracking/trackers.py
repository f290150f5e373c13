"""The three trackers: where each keeps its files, and how it takes up a run that goes on."""

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedseq.tracking import emptied, keep_name, kept_name, refuse_links


class TensorBoard:
    """TensorBoard event files in RUN/tracking/tensorboard: `tensorboard --logdir runs` shows all runs below it."""

    def __init__(self, place: Path, title: str, options: Mapping[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(emptied(place / "tensorboard")))

    def write(self, round_: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, round_)
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()


class WeightsAndBiases:
    """Weights & Biases, offline in RUN/tracking/wandb until `wandb sync` uploads it; WANDB_MODE=online sends at once.

    An offline run cannot be added to, so a continued one is written anew under its old id, from the first round on.
    Online the server knows which steps it has, and only later ones are sent.
    """

    def __init__(self, place: Path, title: str, options: Mapping[str, Any]):
        online = os.environ.get("WANDB_MODE") == "online"
        if not online:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline is offline
            emptied(place / "wandb")
        import wandb

        known = place / "wandb-id"
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedseq"), dir=str(place), name=title, config=dict(options),
            id=kept_name(known) or keep_name(known, secrets.token_hex(4)), resume="allow" if online else None,
            mode="online" if online else "offline", reinit="create_new",
            # Neither the machine nor what else is printed is part of a run's metrics.
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )  # fmt: skip

    def write(self, round_: int, scalars: Mapping[str, float]) -> None:
        if round_ >= self.run.starting_step:
            self.run.log(dict(scalars), step=round_, commit=True)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    """MLflow, in files below RUN/tracking/mlflow; MLFLOW_TRACKING_URI names another store or a server.

    A continued run goes on in the same MLflow run: points that are there already are not written again.
    """

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

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedseq")
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
    refuse_links(*folder.rglob("*"))
    return folder.absolute().as_uri()
