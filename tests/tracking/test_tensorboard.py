from pathlib import Path

import pytest

from .runs import expected, killed_and_continued

pytest.importorskip("tensorboard")


def test_event_files_hold_the_metrics_and_every_round_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = killed_and_continued(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tracking" / "tensorboard"))
    events.Reload()
    for name, points in expected(run).items():  # in float32
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(round_, pytest.approx(value, rel=1e-6)) for round_, value in points]
