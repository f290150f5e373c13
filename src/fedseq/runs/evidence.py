"""What a checkpoint vouches for beside its own files: everything in the run folder that decides the result.

options        of config.yaml: a run is never continued with other ones, however they got there
data           a fingerprint of the examples and who holds them
algorithm      the record of functions and hyper-parameters it was
model          of what is not trained its numbers; of a user's model and loss what they are made of
superclients   the SHA-256 of the groups
metrics        how long the lines up to this round are, and their SHA-256
timing         how long its lines are
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedseq.algorithms.base import signature
from fedseq.basics.files import append_line, cut, digest, open_plain
from fedseq.basics.identity import own_layers, plain
from fedseq.options.datasets import OWN
from fedseq.runs.assembly import Parts
from fedseq.runs.folder import METRICS, TIMING, RunFolder
from fedseq.training.sgd import build

Evidence = dict[str, Any]


def is_evidence(found: Any) -> bool:
    """Whether it has the form of what is written here: whoever can write a manifest can write its checksum."""
    try:
        lengths = [found[name]["length"] for name in ("metrics", "timing")]
        texts = [found["data"], found["metrics"]["sha256"], found["superclients"] or ""]
        named = isinstance(found["algorithm"], dict) and isinstance(found["model"], dict)
        return (
            named
            and isinstance(found["options"], dict)
            and all(type(length) is int for length in lengths)
            and all(isinstance(text, str) for text in texts)
        )
    except (KeyError, TypeError):
        return False


class RoundLog:
    """The run folder while rounds are added to it."""

    def __init__(self, files: RunFolder, parts: Parts, superclients: str | None, kept: Evidence | None = None):
        """`kept` is the evidence of the checkpoint to go on from: lines after it are cut off, to be written again."""
        self.files = files
        self.fixed = {**identity(parts), "options": parts.config.options(), "superclients": superclients}
        lengths = {name: kept[name]["length"] if kept else 0 for name in ("metrics", "timing")}
        cut(files.path / METRICS, lengths["metrics"])
        cut(files.path / TIMING, lengths["timing"])
        self.metrics = _begins_with(files.path / METRICS, lengths["metrics"])

    def append(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        self.metrics.update(append_line(self.files.path / METRICS, record))
        append_line(self.files.path / TIMING, timing)

    def evidence(self) -> Evidence:
        """As of now; the lines are safe on the disk then."""
        metrics, timing = (_synced_length(self.files.path / name) for name in (METRICS, TIMING))
        return {
            **self.fixed,
            "metrics": {"length": metrics, "sha256": self.metrics.hexdigest()},
            "timing": {"length": timing},
        }


def identity(parts: Parts) -> Evidence:
    """What tells this run's data, algorithm and model from others."""
    task = parts.task
    return {"data": task.fingerprint, "algorithm": signature(parts.algorithm), "model": _model(parts)}


def _model(parts: Parts) -> Evidence:
    """Named models and losses are known by the options and by the version of FedSeq; a user's by their code too."""
    task, found = parts.task, {"frozen": parts.task.frozen_digest}
    if parts.config.model == OWN or ":" in str(parts.config.model):
        module = build(task).module
        found |= {"made_by": plain(task.factory), "layers": own_layers(module), "printed": plain(repr(module))}
    if task.loss is not nn.functional.cross_entropy:
        found |= {"loss": plain(task.loss)}
    return found


def other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which way a model is another, in words."""
    if before.get("loss") != now.get("loss"):
        return "a model with another loss"
    if before.get("frozen") != now.get("frozen"):
        return "a model with other frozen parameters"
    return "a model whose code was another"


def damage(files: RunFolder, evidence: Evidence) -> str | None:
    """What in the folder is not what the checkpoint vouches for, if anything."""
    lines = evidence["metrics"]
    if _begins_with(files.path / METRICS, lines["length"]).hexdigest() != lines["sha256"]:
        return f"{METRICS} does not begin with the lines that were written up to then"
    if evidence["superclients"] not in (None, digest(files.superclients)):
        return f"{files.superclients.name} is not what was written"
    return None


def _begins_with(path: Path, length: int) -> "hashlib._Hash":
    """The digest of a file's first bytes, to which more can be added; of fewer if there are not as many."""
    found = hashlib.sha256()
    if length and path.exists():
        with open_plain(path) as file:
            while length > 0 and (block := file.read(min(length, 2**20))):
                found.update(block)
                length -= len(block)
    return found


def _synced_length(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)
