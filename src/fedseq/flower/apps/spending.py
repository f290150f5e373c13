"""A client's own account of its privacy, which it keeps whatever the server does, over all runs it takes part in.

Every visit of a private run adds 1/z^2 to mu^2; visits under other noise, or of another run, add up as well. It is
written down before the client trains. A visit that would exceed the run's budget is refused: by killing or restarting
the server, by more rounds or by a new run, no more can be had from a client than that.
"""

import math
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_json
from fedseq.options.config import Config
from fedseq.privacy.gaussian import epsilon_of
from fedseq.runs.folder import read_json


def charge_visits(config: Config, folder: Path | None, client: int, visits: int) -> None:
    """Count visits that are about to be made; refuse them where the budget does not allow it."""
    if not config.private_visits or config.dp_source != "system" or not config.dp_noise_multiplier:
        return
    if folder is None:
        raise FedSeqError(
            "this node has no memory-dir, in which a private client keeps what it has spent. Give it one."
        )
    file = folder / f"privacy-{client}.json"
    spent = _spent(file) + visits / config.dp_noise_multiplier**2
    epsilon = epsilon_of(math.sqrt(spent), config.dp_target_delta)
    if config.dp_target_epsilon is not None and epsilon > config.dp_target_epsilon * (1 + 1e-9):
        raise FedSeqError(f"the privacy budget of client {client}, epsilon {config.dp_target_epsilon:g}, is spent.")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, {"mu2": spent, "epsilon": epsilon, "delta": config.dp_target_delta})


def _spent(file: Path) -> float:
    found = read_json(file)
    if found is None:
        return 0.0
    spent = found.get("mu2")
    if not isinstance(spent, float) or not 0 <= spent < math.inf:
        raise FedSeqError(f"{file} does not say what was spent. Restore it.")
    return spent
