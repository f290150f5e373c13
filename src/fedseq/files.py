"""Writing files so that a crash leaves the old one or the new one, and nothing in between."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """The file is either the old one or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """What a killed process was writing; to be called by the only one who writes in this folder."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
