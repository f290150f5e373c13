"""A run that ends before its last round: at a target accuracy, or when nothing became better for too long."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedseq.options.config import Config
from fedseq.options.ending import Best, better, ends
from fedseq.training.policy import Policy


@dataclass(frozen=True)
class Stopping(Policy):
    """With patience the best model is kept, as the last one is not it."""

    name = "stopping"
    config: Config

    def judge(
        self, state: Mapping[str, Any] | None, record: Mapping[str, Any], weights: Tensor
    ) -> tuple[Mapping[str, Any] | None, bool]:
        if self.config.patience is None:
            return None, ends(self.config, record, None)
        before = Best(state["round"], state["score"]) if state else None
        best = better(before, record)
        if best is not None and best != before:
            state = {"round": best.round, "score": best.score, "weights": weights}
        return state, ends(self.config, record, best)
