"""Run folders as they are found: a damaged one becomes a line that says what is wrong with it, never a failure.

Reports are made of many folders, some unfinished, some being written right now, some by another version. What can be
read is read: a torn last line of a run in progress is left out, an unreadable side file leaves its part empty.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedseq.configfile import from_mapping, read_yaml
from fedseq.errors import FedSeqError
from fedseq.results import Run, find_runs
from fedseq.version import VERSION


@dataclass(frozen=True)
class Broken:
    """A folder that can't be shown, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True)
class Details:
    """What a run folder holds beside its config and metrics; empty where a file is missing."""

    examples: list[int]  # per client
    label_counts: list[list[int]]  # [clients][classes]
    superclients: list[list[int]]
    timing: list[dict[str, float]]
    environment: dict[str, Any]


def read_all(paths: Iterable[Path]) -> list[Run | Broken]:
    """Each path is a run folder or a folder that holds some. What holds none is broken too, in its place."""
    return [read(folder) for folder in dict.fromkeys(folder for path in paths for folder in _folders(path))]


def readable(found: Iterable[Run | Broken]) -> list[Run]:
    return [run for run in found if isinstance(run, Run)]


def broken(found: Iterable[Run | Broken]) -> list[Broken]:
    return [run for run in found if isinstance(run, Broken)]


def read(folder: Path) -> Run | Broken:
    if not (folder / "config.yaml").exists():
        return Broken(folder, "there is no run in it." if folder.is_dir() else "there is no such folder.")
    try:
        config = from_mapping(read_yaml(folder / "config.yaml"))
        return Run(folder, config, _metrics(folder / "metrics.jsonl"), (folder / "weights.safetensors").exists())
    except FedSeqError as error:
        return Broken(folder, f"{error}{_other_version(folder)}")


def read_details(folder: Path) -> Details:
    clients = _json(folder / "clients.json", dict) or {}
    superclients = _json(folder / "superclients.json", dict) or {}
    return Details(
        examples=_numbers(clients.get("examples")),
        label_counts=_rows(clients.get("label_counts")),
        superclients=_rows(superclients.get("superclients")),
        timing=_timing(folder / "timing.jsonl"),
        environment=_json(folder / "environment.json", dict) or {},
    )


def _folders(path: Path) -> list[Path]:
    return [path] if (path / "config.yaml").exists() or not path.is_dir() else (find_runs(path) or [path])


def _metrics(path: Path) -> list[dict[str, Any]]:
    try:
        complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")  # the rest is being written
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FedSeqError(f"can't read {path.name}: {error}.") from None
    records: list[dict[str, Any]] = []
    for number, line in enumerate(complete.splitlines(), 1):
        record = _record(line)
        if record is None or (records and record["round"] <= records[-1]["round"]):
            raise FedSeqError(f"line {number} of {path.name} is damaged.")
        records.append(record)
    return records


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or type(record.get("round")) is not int:
        return None
    measured = [record.get(name) for name in ("accuracy", "loss", "train_loss")]
    return record if all(value is None or _is_number(value) for value in measured) else None


def _other_version(folder: Path) -> str:
    made_by = (_json(folder / "environment.json", dict) or {}).get("fedseq", VERSION)
    return "" if made_by == VERSION else f" It was made by fedseq {made_by}; this is {VERSION}."


def _json(path: Path, kind: type) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _timing(path: Path) -> list[dict[str, float]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = (_record(line) for line in lines)
    return [{name: value for name, value in line.items() if _is_number(value)} for line in found if line]


def _numbers(value: Any) -> list[int]:
    return value if isinstance(value, list) and all(_is_number(number) for number in value) else []


def _rows(value: Any) -> list[list[int]]:
    rows = [_numbers(row) for row in value] if isinstance(value, list) else []
    return rows if all(rows) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
