"""The gate: an update that is not finite, or far larger than what others send, is rejected and counts as a failed hop.

Large is measured against the median change of the hops accepted lately. Before the first round, when nothing has been
accepted yet, the clients of that round train once from the initial model, each on its own and for the measure only.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from torch import Tensor

from fedseq.config import Config

REMEMBERED = 256  # accepted changes that the median is taken over
HOPELESS = 3  # rounds in a row in which every hop was rejected


def limit(config: Config, changes: Sequence[float]) -> float | None:
    """The largest change to accept; None without a gate, where anything not finite stops the run."""
    if not config.gate:
        return None
    return config.gate_factor * median(changes) if changes else math.inf


def size(before: Tensor, after: Tensor, uploads: Iterable[Tensor], lr: float) -> float:
    """How far a hop moved the parameters, or would by one step along what else it uploads, whichever is more.

    What a client uploads beside its model (SCAFFOLD's change of variate) is of the size of a gradient, and moves every
    client's model by the learning rate times it.
    """
    return max(float((after - before).norm()), *(lr * float(upload.norm()) for upload in uploads), 0.0)


def reason_to_reject(change: float, sent: Sequence[Tensor], loss: float, largest: float) -> str | None:
    """`change` is the hop's size; `sent` is all that the client gives back."""
    if not all(math.isfinite(number) for number in (change, loss, *(float(tensor.sum()) for tensor in sent))):
        return "not finite"
    if change > largest:
        return f"change {change:.3g} is more than {largest:.3g}"
    return None
