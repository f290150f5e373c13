"""One owner of the run folder: who knows its names, what is refused before work, and links that lead elsewhere."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.rounds import prepare as assembly
from fedseq.runs import folder, reading
from fedseq.runs.folder import RunFolder
from fedseq.training.jobs import Task

SOURCE = Path(fedseq.__file__).parent
SHORT = {
    "dataset": "digits", "num_clients": 20, "grouping": "random", "rounds": 2, "engine": "serial",
    "checkpoint_every": 1,
}  # fmt: skip
NAMES = {folder.CONFIG, folder.STUDY, *folder.MADE}  # ".lock" is an ending of other names, too


def test_nobody_else_knows_the_names():
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "runs" and path.name in ("folder.py", "reading.py"):
            continue
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not words & NAMES, path


def test_a_refused_folder_is_refused_before_the_data_is_read(tmp_path, monkeypatch):
    fedseq.run(SHORT, tmp_path / "run")
    monkeypatch.setattr(assembly, "load_dataset", lambda *_: pytest.fail("the data was read"))
    for options in ({"lr": 0.2}, {"rounds": 1}):
        with pytest.raises(FedSeqError, match=r"other options|rounds already"):
            fedseq.run({**SHORT, **options}, tmp_path / "run")
    with RunFolder(tmp_path / "run").held(), pytest.raises(FedSeqError, match="another process"):
        fedseq.run({**SHORT, "rounds": 3}, tmp_path / "run")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / folder.STUDY).write_text("")
    with pytest.raises(FedSeqError, match="results of fedseq group"):
        fedseq.run(SHORT, tmp_path / "study")


def test_what_comes_to_nothing_leaves_no_folder_and_takes_none(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with pytest.raises(FedSeqError):
            fedseq.run({**SHORT, "dataset": f"npz:{tmp_path / 'nothing.npz'}"}, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_everything_is_done_once(tmp_path, monkeypatch):
    done: Counter[str] = Counter()

    def count(owner, attribute):
        original = getattr(owner, attribute)

        def call(*arguments, **options):
            done[attribute] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, attribute, call)

    count(reading, "_read_lines")
    count(RunFolder, "read_superclients")
    count(assembly.algorithms, "build")
    count(Task.fingerprint, "func")
    options = {**SHORT, "algorithm": "fedseq", "grouping": "greedy", "pretrain_epochs": 1, "num_clients": 20}
    run = fedseq.run(options, tmp_path / "run")
    assert done == {"build": 1, "func": 1}
    assert json.loads((run.folder / folder.METRICS).read_text().splitlines()[1]) == run.metrics[1]
    done.clear()
    resumed = fedseq.resume(run.folder, rounds=3)
    assert done == {"_read_lines": 1, "read_superclients": 1, "build": 1, "func": 1}
    assert resumed == fedseq.read_run(run.folder)


@pytest.mark.parametrize("name", [folder.LOCK, folder.TIMING, folder.METRICS, folder.CONFIG, folder.CHECKPOINTS])
def test_no_link_is_written_through(tmp_path, name):
    fedseq.run(SHORT, tmp_path / "run")
    target = tmp_path / "precious"
    link = tmp_path / "run" / name
    if link.is_dir():
        link.rename(target)
    else:
        target.write_bytes(link.read_bytes() or b"precious")
        link.unlink()
    before = snapshot(target)
    link.symlink_to(target)
    with pytest.raises(FedSeqError, match="symbolic link"):
        fedseq.resume(tmp_path / "run", rounds=4)
    assert snapshot(target) == before


@pytest.mark.parametrize("name", [folder.LOCK, folder.TIMING, folder.METRICS])
def test_no_other_file_changes_with_a_run(tmp_path, name):
    """As in a backup that shares what has not changed: cp -al."""
    fedseq.run(SHORT, tmp_path / "run")
    (tmp_path / "backup").hardlink_to(tmp_path / "run" / name)
    before = (tmp_path / "backup").read_bytes()
    with pytest.raises(FedSeqError, match="hard link"):
        fedseq.resume(tmp_path / "run", rounds=4)
    assert (tmp_path / "backup").read_bytes() == before


def snapshot(path):
    return {each: each.read_bytes() for each in (path, *path.rglob("*")) if each.is_file()}


def test_a_link_in_a_new_folder_is_not_written_through(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / folder.TIMING).symlink_to(target)
    with pytest.raises(FedSeqError, match="symbolic link"):
        fedseq.run(SHORT, tmp_path / "run")
    assert target.read_text() == "precious"


def test_the_lock_goes_with_its_process(tmp_path):
    code = (
        "import os, pathlib, signal\n"
        "from fedseq.runs.folder import RunFolder\n"
        f"with RunFolder(pathlib.Path({str(tmp_path)!r})).held():\n"
        "    print('held', flush=True)\n"
        "    signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(FedSeqError, match="another process"), RunFolder(tmp_path).held():
            pass
        process.kill()
        process.wait()
    with RunFolder(tmp_path).held():
        pass


def test_the_last_record_is_found_without_reading_all(tmp_path):
    lines = [json.dumps({"round": number, "text": "x" * 1000}) for number in range(1, 500)]
    (tmp_path / folder.METRICS).write_text("\n".join(lines) + '\n{"round": 500, "te')
    assert reading.last_record(tmp_path)["round"] == 499


@pytest.mark.parametrize("torn", ["", '{"round": 4, "text": "' + "x" * 100_000])
def test_the_last_record_may_be_long(tmp_path, torn):
    """Lines of 300 kB, as of rounds of many units, are longer than what is read at first."""
    lines = [json.dumps({"round": number, "text": "x" * 300_000}) for number in (1, 2, 3)]
    (tmp_path / folder.METRICS).write_text("\n".join(lines) + "\n" + torn)
    assert reading.last_record(tmp_path)["round"] == 3
    (tmp_path / folder.METRICS).write_text("x" * 300_000)
    assert reading.last_record(tmp_path) is None
