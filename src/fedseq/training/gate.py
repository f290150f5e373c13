"""The gate: an update that is not finite, or far larger than what others send, is rejected and counts as a failed hop.

Large is measured against the median change of the hops accepted lately. Before the first round, when nothing has been
accepted yet, the clients of that round train once from the initial model, each on its own and for the measure only.

With exemplars the gate looks at more than size: see standing.py. Then all clients train once before the first round.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from torch import Tensor

from fedseq.options.config import Config
from fedseq.training.standing import Standing, Usual, Visit, usual
from fedseq.training.weights import all_finite

REMEMBERED = 256  # accepted hops that medians are taken over
HOPELESS = 3  # rounds in a row in which every hop was rejected


@dataclass(frozen=True)
class GateMemory:
    """What the gate knows after a round; checkpoints keep it."""

    changes: tuple[float, ...] = ()  # of the hops accepted lately
    rejected_rounds: int = 0  # rounds in a row in which nothing was let through
    standings: Mapping[int, Standing] = field(default_factory=dict)  # by client
    visits: tuple[Visit, ...] = ()  # accepted lately

    def written(self) -> dict[str, Any]:
        """As JSON takes it; what belongs to the check by exemplars is there only where it was made."""
        size = {"changes": list(self.changes), "rejected_rounds": self.rejected_rounds}
        if not self.standings:
            return size
        return {**size, "standings": list(self.standings.items()), "accepted": list(self.visits)}

    @staticmethod
    def read(written: Mapping[str, Any]) -> "GateMemory":
        """KeyError, TypeError or ValueError where it is not what was written."""
        standings = {
            int(client): Standing(tuple(map(float, claim)), *map(float, sums))
            for client, (claim, *sums) in written.get("standings", [])
        }
        visits = tuple(Visit(*map(float, visit)) for visit in written.get("accepted", []))
        return GateMemory(tuple(map(float, written["changes"])), int(written["rejected_rounds"]), standings, visits)


class Watch(NamedTuple):
    """What a chain has to know for the check by exemplars."""

    standings: Mapping[int, Standing]  # of its clients, as of the round's start
    others: Usual | None  # None where there is nothing to compare with: then every visit counts


def watch(config: Config, memory: GateMemory) -> Watch | None:
    """For all clients; None without the check."""
    return Watch(memory.standings, usual(memory.visits)) if config.checks_exemplars else None


def limit(config: Config, changes: Sequence[float]) -> float | None:
    """The largest change to accept; None without a gate, where anything not finite stops the run.

    In private rounds it is passed over instead: that a run stopped would tell of one client.
    """
    if config.private_rounds:
        return math.inf
    if not config.gate:
        return None
    return config.update_check_factor * median(changes) if changes else math.inf


def size(before: Tensor, after: Tensor, uploads: Iterable[Tensor], lr: float) -> float:
    """How far a hop moved the parameters, or would by one step along what else it uploads, whichever is more.

    What a client uploads beside its model (SCAFFOLD's change of variate) is of the size of a gradient, and moves every
    client's model by the learning rate times it.
    """
    return max(float((after - before).norm()), *(lr * float(upload.norm()) for upload in uploads), 0.0)


def reason_to_reject(change: float, sent: Sequence[Tensor], loss: float, largest: float) -> str | None:
    """`change` is the hop's size; `sent` is all that the client gives back."""
    if not (math.isfinite(change) and math.isfinite(loss) and all(map(all_finite, sent))):
        return "not finite"
    if change > largest:
        return f"change {change:.3g} is more than {largest:.3g}"
    return None
