"""Weights & Biases, offline in RUN/tracking/wandb until `wandb sync` uploads it; WANDB_MODE=online sends at once.

An offline run cannot be added to, so a continued one is written anew under its old id, from the first round on. Online
the server knows which steps it has, and only later ones are sent.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedseq.tracking import emptied, keep_name, kept_name


class WeightsAndBiases:
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
