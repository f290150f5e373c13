"""What a client remembers between its visits (SCAFFOLD's variate, FedDyn's gradient), in versions.

A round counts only when the server commits it. A server that was killed goes back to its last checkpoint, and an answer
may be refused: so the server names the version to start from, and a client keeps more than the last one. They are kept
in Flower's state, which lives as long as the SuperNode, and in files, which outlive it.
"""

import re
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.torch import load, save

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically
from fedseq.flower.apps.messages import Version
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
