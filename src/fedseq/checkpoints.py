"""Checkpoints of a run: complete, checksummed, atomic. Only safetensors and JSON; nothing that can execute is read.

    checkpoints/000120.json            the manifest: round, file positions, SHA-256 of every file, and of itself
    checkpoints/000120.safetensors     the algorithm's state
    checkpoints/memory/17-119.safetensors   client 17's memory, last changed in round 119

The manifest is written last and renamed into place: a checkpoint exists when its manifest does. Clients' memory is
written only for the clients that changed, and shared between checkpoints; the last two checkpoints are kept.

Memory that RAM has no room for is written to the very file that the next checkpoint would write, only earlier. Until
then no manifest vouches for it: a run that is killed goes back to its last checkpoint, and writes it again.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedseq.errors import FedSeqError
from fedseq.files import write_atomically
from fedseq.jobs import Memory
from fedseq.stored import DamagedFile, Stored, read_tensors, write_tensors

FORMAT = 1
KEPT = 2
LINE_FILES = ("metrics.jsonl", "timing.jsonl")  # grow by a line a round


@dataclass
class Progress:
    """Where a run stands after a complete round."""

    round: int
    state: dict[str, Tensor]
    memory: Mapping[int, Memory | Stored] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)  # client -> round in which its memory last changed
    changes: tuple[float, ...] = ()  # of the hops accepted lately; the gate's measure
    rejected_rounds: int = 0  # rounds in a row in which the gate let nothing through


class CheckpointWriter:
    """Writes checkpoints of a run folder in the background, one at a time; what fails is raised at the next call.

    A round's state is never changed in place, so that training can go on while it is written.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.pending: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()

    def save(self, progress: Progress) -> None:
        self.wait()
        positions = {name: _length(self.folder / name) for name in LINE_FILES}
        self.pending = self.thread.submit(save_checkpoint, self.folder / "checkpoints", progress, positions)

    def spill(self, progress: Progress, limit: float | None) -> Progress:
        """The progress with at most `limit` GiB of clients' memory in RAM; what changed longest ago goes to files."""
        sizes = {client: _nbytes(kept) for client, kept in progress.memory.items() if not isinstance(kept, Stored)}
        excess = sum(sizes.values()) - (float("inf") if limit is None else limit * 2**30)
        if excess <= 0:
            return progress
        self.wait()  # what a checkpoint does not know of, it would take for old
        folder, memory = self.folder / "checkpoints", dict(progress.memory)
        written = _written(folder)
        for client in sorted(sizes, key=lambda client: (progress.changed[client], client)):
            if excess <= 0:
                break
            memory[client] = _store(folder, client, progress, written)
            excess -= sizes[client]
        return replace(progress, memory=memory)

    def wait(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()


def _length(path: Path) -> int:
    """The file's length, which is safe on the disk before a checkpoint refers to it."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)


def save_checkpoint(folder: Path, progress: Progress, positions: Mapping[str, int]) -> None:
    """Write what changed since the last checkpoint, then the manifest, then drop what nobody needs any more."""
    written = _written(folder)
    files = {}
    for client in sorted(progress.changed):
        stored = _store(folder, client, progress, written)
        files[stored.path.relative_to(folder).as_posix()] = stored.digest
    name = f"{progress.round:06d}.safetensors"
    files[name] = write_tensors(folder / name, progress.state)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "round": progress.round,
        "state": name,
        "positions": dict(positions),
        "changes": list(progress.changes),
        "rejected_rounds": progress.rejected_rounds,
        "files": files,
    }
    manifest["sha256"] = _manifest_digest(manifest)
    write_atomically(folder / f"{progress.round:06d}.json", json.dumps(manifest, indent=1).encode())
    _drop_old(folder)


def _store(folder: Path, client: int, progress: Progress, written: Mapping[str, str]) -> Stored:
    """The client's memory in its file, where it may be already."""
    kept = progress.memory[client]
    if isinstance(kept, Stored):
        return kept
    name = f"memory/{client}-{progress.changed[client]}.safetensors"
    digest = written.get(name) or write_tensors(folder / name, kept)
    device = str(next((tensor.device for tensor in kept.values()), "cpu"))
    return Stored(folder / name, digest, tuple(kept), device)


def _nbytes(memory: Memory) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in memory.values())


def _written(folder: Path) -> dict[str, str]:
    """Files that an undamaged manifest vouches for, with their digests: they need not be written again."""
    digests = {name: digest for _, manifest in _manifests(folder) for name, digest in manifest["files"].items()}
    return {name: digest for name, digest in digests.items() if (folder / name).exists()}


def _manifests(folder: Path) -> Iterable[tuple[Path, dict[str, Any]]]:
    """The undamaged manifests, newest first."""
    for path in _newest_first(folder):
        manifest = _read_manifest(path)
        if manifest is not None:
            yield path, manifest


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.json"), key=lambda path: int(path.stem), reverse=True)


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads(path.read_bytes())
        intact = manifest["sha256"] == _manifest_digest(manifest)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return manifest if intact else None


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _drop_old(folder: Path) -> None:
    manifests = [
        (path, manifest)
        for path, manifest in _manifests(folder)
        if all((folder / f).exists() for f in manifest["files"])
    ]
    needed = {name for _, manifest in manifests[:KEPT] for name in manifest["files"]}
    for path, _ in manifests[KEPT:]:
        path.unlink(missing_ok=True)
    for path in (*folder.glob("*.safetensors"), *folder.glob("memory/*.safetensors")):
        if path.relative_to(folder).as_posix() not in needed:
            path.unlink(missing_ok=True)


def load_checkpoint(folder: Path, device: str = "cpu") -> tuple[Progress, dict[str, int]] | None:
    """The newest good checkpoint; None if none was ever written. Damage is reported, never passed over in silence."""
    paths = _newest_first(folder)
    for path in paths:
        manifest = _read_manifest(path)
        if manifest is None:
            warnings.warn(f"checkpoint {path} is damaged; trying the one before.", stacklevel=2)
            _set_aside(path)
            continue
        if manifest.get("format") != FORMAT:
            raise FedSeqError(f"{path} was written by another version of fedseq (format {manifest.get('format')}).")
        loaded = _load_files(folder, manifest, device)
        if loaded is not None:
            return loaded, manifest["positions"]
        _set_aside(path)  # what is written anew must not be taken for what this one vouches for
    if paths:
        raise FedSeqError(
            f"every checkpoint in {folder} is damaged, so the run can't be continued. Start it anew elsewhere."
        )
    return None


def _set_aside(path: Path) -> None:
    """Keep a damaged file for whoever wants to look, under a name that no later checkpoint takes for a good one."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.damaged"))


def _load_files(folder: Path, manifest: Mapping[str, Any], device: str) -> Progress | None:
    state: dict[str, Tensor] = {}
    memory: dict[int, Memory | Stored] = {}
    changed: dict[int, int] = {}
    for name, digest in manifest["files"].items():
        try:
            tensors = read_tensors(folder / name, digest, device)
        except DamagedFile as error:
            warnings.warn(f"checkpoint file {folder / name} is damaged ({error}); trying the one before.", stacklevel=3)
            _set_aside(folder / name)
            return None
        if name == manifest["state"]:
            state = tensors
            continue
        client, round_ = (int(part) for part in Path(name).stem.split("-"))
        memory[client] = Stored(folder / name, digest, tuple(tensors), device)  # it is read again when it is needed
        changed[client] = round_
    return Progress(manifest["round"], state, memory, changed, tuple(manifest["changes"]), manifest["rejected_rounds"])
