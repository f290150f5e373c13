"""TensorBoard event files in RUN/tracking/tensorboard: `tensorboard --logdir runs` shows all runs below it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedseq.tracking import emptied


class TensorBoard:
    def __init__(self, place: Path, title: str, options: Mapping[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(emptied(place / "tensorboard")))

    def write(self, round_: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, round_)
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()
