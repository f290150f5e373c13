"""Checkpoints of a run: complete, checksummed, atomic. Only safetensors and JSON; nothing that can execute is read.

    checkpoints/000120.json            the manifest: round, SHA-256 of every file and of itself, and what it vouches for
    checkpoints/000120.safetensors     the algorithm's state, and tensors of policies as policy:NAME/KEY
    checkpoints/memory/17-119.safetensors   client 17's memory, last changed in round 119

The manifest is written last and renamed into place: a checkpoint exists when its manifest does. Clients' memory is
written only for the clients that changed, and shared between checkpoints; the last two checkpoints are kept.

Memory that RAM has no room for is written to the very file that the next checkpoint would write, only earlier. Until
then no manifest vouches for it: a run that is killed goes back to its last checkpoint, and writes it again.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import hashed, read_plain, write_atomically
from fedseq.runs.manifests import (
    FORMAT,
    Evidence,
    manifest_digest,
    manifests,
    newest_first,
    of_another_version,
    read_manifest,
)
from fedseq.training.jobs import Memory


@dataclass
class Snapshot:
    """A run after a complete round: all that it needs to go on."""

    round: int
    state: dict[str, Tensor]
    memory: "Mapping[int, Memory | Stored]" = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)  # client -> round in which its memory last changed
    kept: Mapping[str, Any] = field(default_factory=dict)  # the states of policies, by their names

    def fits(self, initial: Mapping[str, Tensor]) -> bool:
        """Whether it can be the state of a run that begins like this; rules may keep more than they begin with."""
        return all(
            name in self.state and (self.state[name].shape, self.state[name].dtype) == (tensor.shape, tensor.dtype)
            for name, tensor in initial.items()
        )


class DamagedFile(Exception):  # noqa: N818 - whoever reads it decides what that means
    """It is missing, or is not what was written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Returns the digest without which the file cannot be read."""
    content = save({key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path, digest: str, device: str) -> dict[str, Tensor]:
    try:
        if hashed(path).hexdigest() != digest:  # in pieces: a file in its place may be of any length
            raise ValueError("its checksum is wrong" if path.exists() else "it is gone")
        return {key: tensor.to(torch.device(device)) for key, tensor in load(read_plain(path, None)).items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise DamagedFile(str(error)) from None


@dataclass(frozen=True)
class Stored(Mapping[str, Tensor]):
    """A client's memory that lies in a file. It reads like the dict it stands for, and keeps nothing of what is read.

    Sent to another process it becomes that dict, as the other may run where the file is not.
    """

    path: Path
    digest: str
    names: tuple[str, ...]
    device: str

    def load(self) -> dict[str, Tensor]:
        try:
            return read_tensors(self.path, self.digest, self.device)
        except DamagedFile as error:
            raise FedSeqError(
                f"{self.path}, where a client's memory was kept, is damaged: {error}. "
                "Resume the run: it goes on from a checkpoint that does without this file, if there is one."
            ) from None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:  # whoever asks for what is not there need not read the rest
            raise KeyError(name)
        return self.load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.load(),)


KEPT = 2
POLICY = "policy:"
_OURS = re.compile(r"\d{6,}\.safetensors|memory/\d+-\d+\.safetensors")  # no other file is ever read or removed


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time; what fails is raised at the next call.

    A round's state is never changed in place, so that training can go on while it is written.
    """

    def __init__(self, folder: Path, evidence: Callable[[], Evidence]):
        self.folder = folder
        self.evidence = evidence  # of what else is in the run folder, as of now
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.pending: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()

    def save(self, snapshot: Snapshot) -> None:
        self.wait()
        self.pending = self.thread.submit(save_checkpoint, self.folder, snapshot, self.evidence())

    def spill(self, snapshot: Snapshot, limit: float | None) -> Snapshot:
        """The snapshot with at most `limit` GiB of clients' memory in RAM; what changed longest ago goes to files."""
        in_ram = {client: kept for client, kept in snapshot.memory.items() if not isinstance(kept, Stored)}
        sizes = {client: sum(tensor.nbytes for tensor in kept.values()) for client, kept in in_ram.items()}
        excess = sum(sizes.values()) - (float("inf") if limit is None else limit * 2**30)
        if excess <= 0:
            return snapshot
        self.wait()  # what a checkpoint does not know of, it would take for old
        folder, memory = self.folder, dict(snapshot.memory)
        written = _written(folder)
        for client in sorted(sizes, key=lambda client: (snapshot.changed[client], client)):
            if excess <= 0:
                break
            memory[client] = _store(folder, client, snapshot, written)
            excess -= sizes[client]
        # What an earlier spill wrote, and was changed since, no checkpoint will ever name: it would fill the disk.
        named = {kept.path for kept in memory.values() if isinstance(kept, Stored)} | {
            folder / name for name in written
        }
        for path in (folder / "memory").glob("*.safetensors"):
            if path not in named and _OURS.fullmatch(path.relative_to(folder).as_posix()):
                path.unlink()
        return replace(snapshot, memory=memory)

    def wait(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()


def save_checkpoint(folder: Path, snapshot: Snapshot, evidence: Evidence) -> None:
    """Write what changed since the last checkpoint, then the manifest, then drop what nobody needs any more."""
    written = _written(folder)
    files = {}
    for client in sorted(snapshot.changed):
        stored = _store(folder, client, snapshot, written)
        files[stored.path.relative_to(folder).as_posix()] = stored.digest
    name = f"{snapshot.round:06d}.safetensors"
    policies, tensors = _apart(snapshot.kept)
    files[name] = write_tensors(folder / name, {**snapshot.state, **tensors})
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "round": snapshot.round,
        "state": name,
        "evidence": evidence,
        "policies": policies,
        "files": files,
    }
    manifest["sha256"] = manifest_digest(manifest)
    write_atomically(folder / f"{snapshot.round:06d}.json", json.dumps(manifest, indent=1).encode())
    _drop_old(folder)


def _apart(kept: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What policies know, as JSON and as tensors."""
    plain: dict[str, Any] = dict(kept)
    tensors: dict[str, Tensor] = {}
    for name, state in kept.items():
        if isinstance(state, Mapping):
            found = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            tensors |= {f"{POLICY}{name}/{key}": value for key, value in found.items()}
            plain[name] = {key: value for key, value in state.items() if key not in found}
    return plain, tensors


def _together(plain: Mapping[str, Any], stored: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The algorithm's state, and what policies know: the other way round."""
    kept = dict(plain)
    for name, tensor in stored.items():
        if name.startswith(POLICY):
            policy, _, key = name.removeprefix(POLICY).partition("/")
            kept[policy] = {**kept[policy], key: tensor}
    return {name: tensor for name, tensor in stored.items() if not name.startswith(POLICY)}, kept


def _store(folder: Path, client: int, snapshot: Snapshot, written: Mapping[str, str]) -> Stored:
    """The client's memory in its file, where it may be already."""
    kept = snapshot.memory[client]
    if isinstance(kept, Stored):
        return kept
    name = f"memory/{client}-{snapshot.changed[client]}.safetensors"
    digest = written.get(name) or write_tensors(folder / name, kept)
    device = str(next((tensor.device for tensor in kept.values()), "cpu"))
    return Stored(folder / name, digest, tuple(kept), device)


def _written(folder: Path) -> dict[str, str]:
    """Files that an undamaged manifest vouches for, with their digests: they need not be written again."""
    digests = {name: digest for _, manifest in manifests(folder) for name, digest in manifest["files"].items()}
    return {name: digest for name, digest in digests.items() if (folder / name).exists()}


def _drop_old(folder: Path) -> None:
    whole = [found for found in manifests(folder) if all((folder / name).exists() for name in found[1]["files"])]
    needed = {name for _, manifest in whole[:KEPT] for name in manifest["files"]}
    for path, _ in whole[KEPT:]:
        path.unlink(missing_ok=True)
    for path in (*folder.glob("*.safetensors"), *folder.glob("memory/*.safetensors")):
        name = path.relative_to(folder).as_posix()
        if name not in needed and _OURS.fullmatch(name):
            path.unlink(missing_ok=True)


def load_checkpoint(
    folder: Path, device: str = "cpu", damage: Callable[[Evidence], str | None] = lambda _: None
) -> tuple[Snapshot, Evidence] | None:
    """The newest good checkpoint; None if none was ever written. Damage is reported, never passed over in silence.

    A checkpoint is good if its files are, and everything else that it vouches for, of which `damage` tells.
    """
    bad: list[Path] = []
    for path in (paths := newest_first(folder)):
        try:
            loaded = _load(path, device, damage)
        except DamagedFile as error:
            what, why = error.args
            warnings.warn(f"checkpoint file {what} is damaged ({why}); trying the one before.", stacklevel=2)
            bad += dict.fromkeys((path, what))  # what is written anew is not what this manifest vouches for
            continue
        for damaged in bad:  # kept for whoever wants to look, under a name that no later checkpoint takes for good
            if damaged.exists():
                damaged.replace(damaged.with_name(f"{damaged.name}.damaged"))
        return loaded
    if paths:
        raise FedSeqError(
            f"every checkpoint in {folder} is damaged, or what it belongs to, so the run cannot be continued: {why}. "
            f"Nothing was changed. To begin anew and keep what is there, run: fedseq resume {folder.parent} --restart"
        )
    return None


def _load(path: Path, device: str, damage: Callable[[Evidence], str | None]) -> tuple[Snapshot, Evidence]:
    """A checkpoint by its manifest; DamagedFile(which, why) where something is wrong with it."""
    manifest = read_manifest(path)
    # A manifest from elsewhere names nothing outside of its folder.
    if manifest is None or not all(_OURS.fullmatch(name) for name in manifest["files"]):
        raise DamagedFile(path, "it is not what was written")
    if manifest["format"] != FORMAT:
        raise of_another_version(path, manifest["format"])
    if reason := damage(manifest["evidence"]):
        raise DamagedFile(path, reason)
    stored: dict[str, Tensor] = {}
    changed: dict[int, int] = {}
    memory: dict[int, Memory | Stored] = {}
    for name, digest in manifest["files"].items():
        file = path.parent / name
        try:
            tensors = read_tensors(file, digest, device)
        except DamagedFile as error:
            raise DamagedFile(file, str(error)) from None
        if name == manifest["state"]:
            stored = tensors
        else:
            client, round_ = (int(part) for part in file.stem.split("-"))
            memory[client] = Stored(file, digest, tuple(tensors), device)  # it is read again when it is needed
            changed[client] = round_
    state, kept = _together(manifest["policies"], stored)
    return Snapshot(manifest["round"], state, memory, changed, kept), manifest["evidence"]
