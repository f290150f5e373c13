from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .runs import Points, expected, killed_and_continued

pytest.importorskip("tensorboard")


def read_back(folder: Path, names: Iterable[str]) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


def in_float32(points: Points) -> dict[str, list[tuple[int, Any]]]:
    return {name: [(round_, pytest.approx(value, rel=1e-6)) for round_, value in of] for name, of in points.items()}


def test_event_files_hold_the_metrics_and_every_round_once(tmp_path: Path) -> None:
    wanted = expected(killed_and_continued(tmp_path / "run", "tensorboard"))
    assert read_back(tmp_path / "run" / "tracking" / "tensorboard", wanted) == in_float32(wanted)
