"""A run after a complete round: all that it needs to go on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedseq.runs.tensor_files import Stored
from fedseq.training.jobs import Memory


@dataclass
class Snapshot:
    round: int
    state: dict[str, Tensor]
    memory: Mapping[int, Memory | Stored] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)  # client -> round in which its memory last changed
    kept: Mapping[str, Any] = field(default_factory=dict)  # the states of policies, by their names

    def fits(self, initial: Mapping[str, Tensor]) -> bool:
        """Whether it can be the state of a run that begins like this; rules may keep more than they begin with."""
        return all(
            name in self.state and (self.state[name].shape, self.state[name].dtype) == (tensor.shape, tensor.dtype)
            for name, tensor in initial.items()
        )
