"""A run after a complete round: all that it needs to go on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedseq.runs.enough import Best
from fedseq.runs.tensor_files import Stored
from fedseq.training.gate import GateMemory
from fedseq.training.jobs import Memory


@dataclass
class Snapshot:
    round: int
    state: dict[str, Tensor]
    memory: Mapping[int, Memory | Stored] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)  # client -> round in which its memory last changed
    gate: GateMemory = field(default_factory=GateMemory)
    best: Best | None = None  # kept where a run may end for want of a better one
    best_model: dict[str, Tensor] = field(default_factory=dict)  # its weights
    visits: tuple[int, ...] = ()  # of each client, in a private run: what it has spent

    def fits(self, initial: Mapping[str, Tensor]) -> bool:
        """Whether it can be the state of a run that begins like this; rules may keep more than they begin with."""
        best = {"weights": initial["weights"]} if self.best else {}
        return _fit(self.state, initial) and _fit(self.best_model, best)


def _fit(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return all(
        name in found and (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
        for name, tensor in expected.items()
    )
