import json
import time
from pathlib import Path

import pytest

from .runs import Points, expected, killed_and_continued

pytest.importorskip("wandb")


def read_back(file: Path) -> tuple[Points, str]:
    """The history in an offline run's file and the run's id, by the package's own reader."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store, points, name = DataStore(), Points(), ""
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        name = record.run.run_id or name
        values = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for key, value in values.items():
            if not key.startswith("_"):
                points.setdefault(key, []).append((values["_step"], value))
    return points, name


def test_an_offline_run_holds_the_metrics_and_every_round_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = killed_and_continued(tmp_path / "run", "wandb")
    (file,) = (tmp_path / "run" / "tracking" / "wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30
    while not (found := read_back(file))[0] and time.monotonic() < deadline:  # its own process writes it
        time.sleep(0.1)
    points, name = found
    assert points == expected(run)
    assert name == (tmp_path / "run" / "tracking" / "wandb-id").read_text().strip()
