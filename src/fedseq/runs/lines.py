"""What counts as a line of metrics.jsonl or timing.jsonl: a foreign one may hold anything."""

import json
from typing import Any

_MEASURED = ("accuracy", "loss", "train_loss", "epsilon")
_COUNTED = ("client_updates", "bytes_down", "bytes_up")


def parse_line(line: str) -> dict[str, Any] | None:
    """The record that a line holds, where it is one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("round")) is not int:
        return None
    sound = all(record.get(name) is None or is_number(record[name]) for name in _MEASURED)
    sound = sound and all(type(record.get(name, 0)) is int for name in _COUNTED)
    skipped = record.get("skipped", [])
    return record if sound and isinstance(skipped, list) and all(isinstance(hop, dict) for hop in skipped) else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
