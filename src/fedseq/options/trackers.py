"""The trackers that a user may name, as rows of a table."""

from dataclasses import dataclass

from fedseq.options.tables import Row, Table


@dataclass(frozen=True)
class TrackerRow(Row):
    package: str = ""  # that has to be installed


TRACKERS = Table("tracker", {
    "tensorboard": TrackerRow("fedseq.tracking.tensorboard:TensorBoard", package="tensorboard"),
    "wandb": TrackerRow("fedseq.tracking.wandb:WeightsAndBiases", package="wandb"),
    "mlflow": TrackerRow("fedseq.tracking.mlflow:MLflow", package="mlflow"),
})  # fmt: skip


def trackers_of(track: str) -> list[str]:
    """The names in tensorboard+wandb, of which there are none in "none"."""
    names = [] if track == "none" else track.split("+")
    for name in names:
        TRACKERS.row(name)
    return list(dict.fromkeys(names))
