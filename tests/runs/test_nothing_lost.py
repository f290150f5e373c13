"""A user's files are never touched, and a run is never begun anew over its own history unless the user says so."""

import shutil

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.runs import reading
from fedseq.runs.reading import read_run
from fedseq.training.reporter import Quiet

SHORT = {
    "dataset": "digits", "num_clients": 20, "grouping": "random", "rounds": 2, "engine": "serial",
    "checkpoint_every": 1,
}  # fmt: skip


def test_files_of_others_in_and_below_the_folder_stay(tmp_path):
    names = (".notes.tmp", "sub/.draft.123.tmp", "pretraining-notes/.a.b.tmp", "other/checkpoints/000001.safetensors")
    for name in names:
        (tmp_path / "proj" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proj" / name).write_text("mine")
    fedseq.run(SHORT, tmp_path / "proj")
    assert {name: (tmp_path / "proj" / name).read_text() for name in names} == dict.fromkeys(names, "mine")


def test_only_what_we_were_writing_is_removed_and_only_right_there(tmp_path):
    fedseq.run(SHORT, tmp_path / "proj" / "run")
    unfinished = tmp_path / "proj" / "run" / ".config.yaml.1.fedseq-unfinished"
    unfinished.write_text("half")
    fedseq.run(SHORT, tmp_path / "proj")  # a parent does not look into a run below it
    assert unfinished.exists()
    fedseq.resume(tmp_path / "proj" / "run", rounds=3)
    assert not unfinished.exists()


def test_files_of_others_among_the_checkpoints_stay(tmp_path):
    fedseq.run(SHORT, tmp_path / "run")
    mine = tmp_path / "run" / "checkpoints" / "best-model.safetensors"
    mine.write_bytes(b"mine")
    fedseq.resume(tmp_path / "run", rounds=5)
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("finished", [True, False])
def test_without_a_checkpoint_a_run_is_refused_every_time_and_nothing_is_changed(tmp_path, finished):
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    shutil.rmtree(folder / "checkpoints")
    if not finished:
        (folder / "weights.safetensors").unlink()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "config.yaml"}
    for _ in range(3):
        with pytest.raises(FedSeqError, match=r"no checkpoint to continue it from.*--restart"):
            fedseq.resume(folder, rounds=4)
    assert {path: path.read_bytes() for path in before} == before


def test_a_finished_run_needs_no_checkpoint_to_be_read(tmp_path):
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    shutil.rmtree(folder / "checkpoints")
    assert fedseq.resume(folder).rounds == 2


def test_damaged_twice_it_is_refused_twice(tmp_path):
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    for path in (folder / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"damaged")
    metrics = (folder / "metrics.jsonl").read_bytes()
    for _ in range(2):
        with (
            pytest.warns(UserWarning, match="damaged"),
            pytest.raises(FedSeqError, match=r"every checkpoint.*--restart"),
        ):
            fedseq.resume(folder, rounds=3)
    assert (folder / "metrics.jsonl").read_bytes() == metrics


def test_restart_begins_anew_and_keeps_what_was_there(tmp_path):
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    weights, metrics = ((folder / name).read_bytes() for name in ("weights.safetensors", "metrics.jsonl"))
    shutil.rmtree(folder / "checkpoints")
    again = fedseq.resume(folder, restart=True)
    assert again.finished
    assert (folder / "metrics.jsonl").read_bytes() == metrics  # the same config and seed
    assert (folder / "earlier" / "weights.safetensors").read_bytes() == weights
    assert read_run(folder / "earlier").rounds == 2
    fedseq.resume(folder, restart=True)
    assert (folder / "earlier-2" / "metrics.jsonl").read_bytes() == metrics
    assert fedseq.resume(folder, restart=True, rounds=1).rounds == 1  # fewer than it had: it is kept all the same


def test_a_run_that_was_killed_before_its_first_checkpoint_of_a_round_continues(tmp_path):
    """The start itself is a checkpoint, so there is always one where there is history."""
    whole = fedseq.run(SHORT, tmp_path / "whole")
    folder = fedseq.run(SHORT, tmp_path / "run", checkpoint_every=100).folder
    for path in (folder / "checkpoints").glob("000002*"):
        path.unlink()
    (folder / "weights.safetensors").unlink()
    assert fedseq.resume(folder).metrics == whole.metrics


def test_a_refused_run_keeps_its_config(tmp_path):
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "config.yaml").read_bytes()
    with pytest.raises(FedSeqError, match="nothing was changed"):
        fedseq.resume(folder, rounds=4)
    assert (folder / "config.yaml").read_bytes() == before
    assert read_run(folder).finished


def test_numbers_that_were_changed_after_the_end_are_not_shown(tmp_path):
    """A flipped digit is JSON still, and a lost line leaves others; only the checksum tells."""
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    metrics, clients = folder / "metrics.jsonl", folder / "clients.json"
    written = metrics.read_text()
    for other in (written.replace('"accuracy": 0.', '"accuracy": 0.9', 1), written.splitlines(keepends=True)[0]):
        metrics.write_text(other)
        found = reading.broken(reading.read_all([folder]))
        assert found[0].reason.startswith(f"{metrics} is not what the run wrote")
    metrics.write_text(written)
    assert read_run(folder).finished
    assert read_run(folder).details.examples
    clients.write_text(clients.read_text().replace("1", "2", 1))
    with pytest.raises(FedSeqError, match=r"clients\.json is not what the run wrote"):
        _ = read_run(folder).details


def test_a_run_that_goes_on_after_its_end_can_be_read_meanwhile(tmp_path):
    """Its metrics grow, and its checksums are those of the end before."""
    folder = fedseq.run(SHORT, tmp_path / "run").folder
    seen = []

    class Reading(Quiet):
        def round(self, record):
            seen.append(reading.read_all([folder])[0])

    fedseq.resume(folder, rounds=5, reporter=Reading())
    assert [run.rounds for run in reading.readable(seen)] == [3, 4, 5]
    assert fedseq.read_run(folder).finished


@pytest.mark.parametrize("name", ["clients.json", "timing.jsonl", "SHA256SUMS", "tracking"])
def test_a_folder_with_files_of_others_that_have_our_names_is_refused(tmp_path, name):
    mine = tmp_path / name if "." in name or name.isupper() else tmp_path / name / "mine"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(FedSeqError, match=rf"holds {name}, which a run would write over"):
        fedseq.run(SHORT, tmp_path)
    assert mine.read_text() == "mine"


def test_a_run_that_was_killed_while_it_was_being_described_continues(tmp_path):
    """config.yaml is there first: what else is in a folder without one is not ours."""
    whole = fedseq.run(SHORT, tmp_path / "whole")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_bytes((whole.folder / "config.yaml").read_bytes())
    assert fedseq.resume(folder).metrics == whole.metrics
    assert (folder / "environment.json").exists()
