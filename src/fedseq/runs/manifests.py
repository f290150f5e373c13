"""Manifests of checkpoints, without their tensors: which there are, and what they vouch for beside their own files.

options        of config.yaml: a run is never continued with other ones, however they got there
data           a fingerprint of the examples and who holds them
algorithm      the record of functions and hyper-parameters it was
model          of what is not trained its numbers; of a user's model and loss what they are made of
superclients   the SHA-256 of the groups
metrics        how long the lines up to this round are, and their SHA-256
timing         the same of its lines
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import fits, read_plain

FORMAT = 4
READABLE = (3, 4)  # what a run says of itself was the same then; only it cannot go on
Evidence = dict[str, Any]
_NAME = re.compile(r"\d{6,}\.json")
_EVIDENCE = {
    "options": dict, "data": str, "algorithm": dict, "model": dict, "superclients": (str, None),
    "metrics": {"length": int, "sha256": str}, "timing": {"length": int, "sha256?": str},
}  # fmt: skip
_MANIFEST = {
    "format": int, "sha256": str, "round": int, "state": str, "files": dict, "evidence": _EVIDENCE,
    "policies?": dict,
}  # fmt: skip


def newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("*.json") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """None where it is damaged; one of another version of ours is refused."""
    try:
        manifest = json.loads(read_plain(path))
        if not fits(manifest, {"sha256": str}) or manifest["sha256"] != manifest_digest(manifest):
            return None
        if manifest.get("format") not in READABLE:
            raise of_another_version(path, manifest.get("format"))
        sound = fits(manifest, _MANIFEST) and manifest["round"] == int(path.stem)
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if sound and manifest["state"] in manifest["files"] else None


def of_another_version(path: Path, found: object) -> FedSeqError:
    return FedSeqError(f"{path} was written by another version of fedseq (format {found}).")


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def manifests(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The undamaged ones, newest first."""
    for path in newest_first(folder):
        if manifest := read_manifest(path):
            yield path, manifest


def newest_evidence(folder: Path) -> Evidence | None:
    """What the newest undamaged manifest vouches for; None where there is none."""
    return next((manifest["evidence"] for _, manifest in manifests(folder)), None)
