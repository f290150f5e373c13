"""TensorBoard event files: of a run folder as it stands, or while the run goes on."""

import time
from pathlib import Path
from typing import Any

from fedseq.config import Config
from fedseq.errors import FedSeqError
from fedseq.report.reading import Broken, read

FOLDER = "tensorboard"  # in the run folder
SCALARS = ("accuracy", "loss", "train_loss", "client_updates", "bytes_down", "bytes_up")


def export(folder: Path) -> Path:
    """Write all rounds of a run, in place of what was exported before."""
    run = read(folder)
    if isinstance(run, Broken):
        raise FedSeqError(f"{run.folder}: {run.reason}")
    events = folder / FOLDER
    for old in events.glob("events.out.tfevents.*"):
        old.unlink()
    writer = _writer(events)
    for record in run.metrics:
        writer.add_event(_event(record))
    writer.close()
    return events


class TensorBoardReporter:
    """Passes everything on to another reporter and writes each round too. A failure is told once, and stops nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.writer: Any = None

    def stage(self, done: int, total: int, what: str) -> None:
        self.inner.stage(done, total, what)

    def note(self, text: str) -> None:
        self.inner.note(text)

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self.inner.begin(config, folder, round_)
        try:
            export(folder)  # what a continued run holds already
            self.writer = _writer(folder / FOLDER)
        except (FedSeqError, OSError) as error:
            self.note(f"no TensorBoard files: {error}")

    def round(self, record: dict[str, Any]) -> None:
        self.inner.round(record)
        if self.writer is None:
            return
        try:
            self.writer.add_event(_event(record))
            self.writer.flush()
        except (OSError, ValueError, RuntimeError) as error:
            self.writer = None
            self.note(f"no more TensorBoard files: {error}")


def with_events(reporter: Any, wanted: bool) -> Any:
    return TensorBoardReporter(reporter) if wanted else reporter


def _writer(folder: Path) -> Any:
    try:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise FedSeqError("TensorBoard is not installed. Get it with: pip install 'fedseq[tensorboard]'") from None
    return EventFileWriter(str(folder))


def _event(record: dict[str, Any]) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = {name: record[name] for name in SCALARS if record.get(name) is not None}
    for number, accuracy in enumerate(record.get("per_class_accuracy") or ()):
        if accuracy is not None:
            values[f"class_accuracy/{number}"] = accuracy
    summary = Summary(value=[Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()])
    return Event(wall_time=time.time(), step=record["round"], summary=summary)
