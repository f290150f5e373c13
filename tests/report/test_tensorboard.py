import pytest

from fedseq.progress import QUIET
from fedseq.report.reading import read
from fedseq.report.tensorboard import TensorBoardReporter, export

from .builders import make_run, record

pytest.importorskip("tensorboard")


def scalars(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, round(event.value, 6)) for event in events.Scalars(tag)]


def test_export_writes_every_round_once_however_often(tmp_path):
    folder = make_run(tmp_path / "a", [0.25, None, 0.75])
    export(folder)
    assert scalars(export(folder), "accuracy") == [(1, 0.25), (3, 0.75)]
    assert scalars(folder / "tensorboard", "client_updates") == [(1, 2), (2, 2), (3, 2)]


def test_live_files_hold_old_and_new_rounds(tmp_path):
    folder = make_run(tmp_path / "a", [0.25], finished=False)
    reporter = TensorBoardReporter(QUIET)
    reporter.begin(read(folder).config, folder, 1)
    reporter.round(record(2, 0.5, [[0]]))
    assert scalars(folder / "tensorboard", "accuracy") == [(1, 0.25), (2, 0.5)]


def test_a_failure_is_told_and_stops_nothing(tmp_path):
    notes = []

    class Notes(type(QUIET)):
        def note(self, text):
            notes.append(text)

    reporter = TensorBoardReporter(Notes())
    reporter.begin(read(make_run(tmp_path / "a", [0.1])).config, tmp_path / "nowhere", 0)
    reporter.round(record(1, 0.5, [[0]]))
    assert len(notes) == 1
    assert "TensorBoard" in notes[0]
