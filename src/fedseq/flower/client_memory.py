"""What a client keeps between its visits: the memory of its algorithm, in versions, and an account of its privacy.

A round counts only when the server commits it. A server that was killed goes back to its last checkpoint, and an
answer may be refused: so the server names the version to start from, and a client keeps more than the last one (of
SCAFFOLD its variate, of FedDyn its gradient). They are kept in Flower's state, which lives as long as the SuperNode,
and in files, which outlive it.

The account is kept whatever the server does, over all runs that a client takes part in. Every visit of a private run
adds 1/z^2 to mu^2; visits under other noise, or of another run, add up as well. It is written down before the client
trains. A visit that would exceed the run's budget is refused: by killing or restarting the server, by more rounds or by
a new run, no more can be had from a client than that.
"""

import math
import re
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.torch import load, save

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically, write_json
from fedseq.flower.messages import Version
from fedseq.options.config import Config
from fedseq.privacy.gaussian import epsilon_of
from fedseq.runs.folder import read_json
from fedseq.training.jobs import Memory

_PREFIX = "memory-"


class Memories:
    def __init__(self, run: str, client: int, state: RecordDict, folder: Path | None, rounds_back: int):
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):  # it becomes a folder's name
            raise FedSeqError(f"the run's name {run!r:.80} is not in hexadecimal.")
        self.state = state
        self.rounds_back = rounds_back
        self.base: Version | None = None  # what the server named last
        self.folder = folder / run / str(client) if folder else None

    def load(self, version: Version | None) -> Memory:
        """The memory as of this version, which is the last that counts for the server; nothing at a first visit."""
        self.base = version
        if version is None:
            return {}
        name = _name(version)
        if name in self.state:
            arrays = self.state.array_records[name]
            return {key: torch.from_numpy(array.numpy().copy()) for key, array in arrays.items()}
        file = self._file(name)
        if file is None or not file.exists():
            raise FedSeqError(f"the memory of round {version[0]} is lost; give the node the memory-dir it had.")
        return load(file.read_bytes())

    def save(self, version: Version, memory: Memory) -> None:
        name = _name(version)
        file = self._file(name)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, save({key: tensor.clone().contiguous() for key, tensor in memory.items()}))
        self.state[name] = ArrayRecord({key: Array(tensor.numpy()) for key, tensor in memory.items()})
        self._forget(version)

    def _forget(self, newest: Version) -> None:
        """What no server can ask for: answers that never counted, and what is older than its checkpoints."""
        stored = {_version(name) for name in self.state if name.startswith(_PREFIX)}
        if self.folder is not None:
            stored |= {_version(file.stem) for file in self.folder.glob(f"{_PREFIX}*.safetensors")}
        counted = {version for version in stored if self.base is not None and version <= self.base}
        oldest = newest[0] - self.rounds_back
        settled = max((version for version in counted if version[0] <= oldest), default=(0, 0))
        for version in stored - {newest} - {version for version in counted if version >= settled}:
            self.state.pop(_name(version), None)
            file = self._file(_name(version))
            if file is not None:
                file.unlink(missing_ok=True)

    def _file(self, name: str) -> Path | None:
        return self.folder / f"{name}.safetensors" if self.folder else None


def rounds_back(checkpoint_every: int) -> int:
    """How far a killed server may go back: one checkpoint may be damaged, and one not be written yet."""
    return 3 * checkpoint_every


def _name(version: Version) -> str:
    return f"{_PREFIX}{version[0]}-{version[1]}"


def _version(name: str) -> Version:
    round_, visit = name.removeprefix(_PREFIX).split("-")
    return int(round_), int(visit)


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
