from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.options.resolve import resolve
from fedseq.options.tables import TRACKERS, TrackerRow
from fedseq.tracking import check_installed, scalars, tracked

from .runs import small_run


def test_all_numbers_of_a_round_and_nothing_else() -> None:
    record = {
        "round": 3, "accuracy": 0.5, "loss": None, "drawn": [1, 2], "per_class_accuracy": [0.25, None], "bytes_up": 8,
        "clients_accuracy": {"mean": 0.4, "worst": None}, "odd": True,
    }  # fmt: skip
    assert scalars(record) == {
        "accuracy": 0.5, "bytes_up": 8.0, "class_accuracy/0": 0.25, "clients_accuracy/mean": 0.4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("track", "words"),
    [("wandbb", "Did you mean 'wandb'"), ("wandb+", "unknown tracker ''"), ("none+wandb", "unknown tracker 'none'")],
)
def test_names_are_checked(track: str, words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        resolve({"track": track})


def test_a_package_that_is_not_there_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        TRACKERS, "wandb", TrackerRow("fedseq.tracking.trackers:WeightsAndBiases", package="no_such_package")
    )
    with pytest.raises(FedSeqError, match=r"pip install '\.\[wandb\]'"):
        check_installed(resolve({"track": "wandb"}))


class Failing:
    def __init__(self, *_: object) -> None:
        self.written = 0

    def write(self, round_: int, found: object) -> None:
        if round_ == 2:
            raise OSError("the disk is full")

    def close(self, finished: bool) -> None:
        raise AssertionError("it was left out")


def test_a_failure_is_told_once_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACKERS, "failing", TrackerRow(f"{__name__}:Failing"))
    notes: list[str] = []
    with tracked(resolve({"track": "failing"}), tmp_path, [], notes.append) as track:
        assert track is not None
        for round_ in (1, 2, 3):
            track({"round": round_, "accuracy": 0.5})
    assert notes == ["nothing more is tracked by failing: OSError: the disk is full."]


def test_finished_runs_can_be_tracked_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    small_run(tmp_path / "a", "none")
    assert main(["report", "a", "--track", "tensorboard"]) == 0
    assert "tracked: a/tracking" in capsys.readouterr().out
    assert len(list((tmp_path / "a" / "tracking" / "tensorboard").glob("events.out.tfevents.*"))) == 1
