"""Collecting what a checkpoint vouches for beside its own files: all in the run folder that decides the result."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedseq.algorithms.base import signature
from fedseq.basics.files import append_line, cut, digest, hashed
from fedseq.basics.identity import own_layers, plain
from fedseq.options.datasets import OWN
from fedseq.rounds.prepare import Parts
from fedseq.runs.folder import METRICS, TIMING, RunFolder
from fedseq.runs.manifests import Evidence

_LINES = {"metrics": METRICS, "timing": TIMING}


class RoundLog:
    """The run folder while rounds are added to it."""

    def __init__(self, files: RunFolder, fixed: Evidence, kept: Evidence | None = None):
        """`fixed` is what never changes in a run. Lines after those of `kept` are cut off."""
        self.files = files
        self.fixed = fixed
        lengths = {part: kept[part]["length"] if kept else 0 for part in _LINES}
        for part, name in _LINES.items():
            cut(files.path / name, lengths[part])
        self.digests = {name: hashed(files.path / name, lengths[part]) for part, name in _LINES.items()}
        if kept and kept["timing"].get("sha256", found := self.digests[TIMING].hexdigest()) != found:
            _set_aside(files.path / TIMING)
            self.digests[TIMING] = hashed(files.path / TIMING)

    def append(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        for name, line in ((METRICS, record), (TIMING, timing)):
            self.digests[name].update(append_line(self.files.path / name, line))

    def evidence(self) -> Evidence:
        """As of now; the lines are safe on the disk then."""
        return self.fixed | {
            part: {"length": _synced_length(self.files.path / name), "sha256": self.digests[name].hexdigest()}
            for part, name in _LINES.items()
        }


def identity(parts: Parts) -> Evidence:
    """What tells this run's data, algorithm and model from others."""
    task, data = parts.task, parts.task.fingerprint
    if parts.config.dataset == OWN and task.test.owner is not None:  # of named data the source says it
        data += "-" + hashlib.sha256(task.test.owner.numpy(force=True).tobytes()).hexdigest()[:16]
    return {"data": data, "algorithm": signature(parts.algorithm), "model": _model(parts)}


def _model(parts: Parts) -> Evidence:
    """Named models and losses are known by the options and by the version of FedSeq; a user's by their code too."""
    task, found = parts.task, {"frozen": parts.task.frozen_digest}
    if parts.config.model == OWN or ":" in str(parts.config.model):
        module = parts.model.module
        found |= {"made_by": plain(task.factory), "layers": own_layers(module), "printed": plain(repr(module))}
    if own := [policy for policy in parts.policies if not type(policy).__module__.startswith("fedseq.")]:
        found |= {"policies": plain(own)}
    if task.loss is not nn.functional.cross_entropy:
        found |= {"loss": plain(task.loss)}
    return found


def other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which way a model is another, in words."""
    if before.get("loss") != now.get("loss"):
        return "a model with another loss"
    if before.get("policies") != now.get("policies"):
        return "a model under other policies"
    if before.get("frozen") != now.get("frozen"):
        return "a model with other frozen parameters"
    return "a model whose code was another"


def damage(files: RunFolder, evidence: Evidence) -> str | None:
    """What in the folder is not what the checkpoint vouches for, if anything."""
    lines = evidence["metrics"]
    if hashed(files.path / METRICS, lines["length"]).hexdigest() != lines["sha256"]:
        return f"{METRICS} does not begin with the lines that were written up to then"
    if evidence["superclients"] not in (None, digest(files.superclients)):
        return f"{files.superclients.name} is not what was written"
    return None


def _set_aside(path: Path) -> None:
    """It decides nothing and cannot be made again: what is left of it is kept beside the new one."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.damaged"))


def _synced_length(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)
