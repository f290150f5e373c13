"""The commands themselves, on a small slice: real runs in real worker processes."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fedseq.cli import main
from fedseq.paper import plan
from fedseq.paper.plan import NAMES
from fedseq.runs.reading import read_run
from helpers import children_of, is_running, start, wait_for

SMALL = {"model": "mlp", "pretrain_epochs": 1, "num_clients": 20, "max_clients": 5, "min_samples": 1}


@pytest.fixture
def slice_of_tiny(monkeypatch):
    tiny = replace(plan.SCALES["tiny"], seeds=(0,), rounds={"digits": 4}, centralized_rounds=2, options=SMALL)
    monkeypatch.setitem(plan.SCALES, "tiny", replace(tiny, longest_pretraining=10))


@pytest.mark.slow
def test_every_artefact_is_made_and_nothing_is_run_twice(slice_of_tiny, capsys):
    only = ["--only", "alpha=0,algorithm=fedavg|fedseq"]
    assert main(["paper", "all", "--yes", "--jobs", "2", *only]) == 0
    out = capsys.readouterr().out
    assert "Measuring a few rounds" in out
    assert "to do: " in out
    folder = Path("runs/paper/tiny")
    for name in NAMES:
        suffixes = (".md", ".csv", ".tex") if name.startswith("table") else (".png", ".pdf")
        for suffix in suffixes:
            assert (folder / f"{name}{suffix}").stat().st_size > 500, name
    assert "not run" in (folder / "table1.md").read_text()
    quality = (folder / "table4.md").read_text()
    assert quality.count("not run") >= 15  # the other alphas are missing, so there is no mean over them
    made = {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")}
    assert main(["paper", "table2", *only]) == 0  # nothing to do, so nothing to ask
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("weights.safetensors")} == made
    assert not list(folder.rglob("weights.npy")), "pre-trained weights would be gigabytes"


def test_nothing_starts_without_a_yes(slice_of_tiny, capsys):
    assert main(["paper", "table3", "--only", "alpha=0.5,grouping=random"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert not list(Path("runs").rglob("metrics.jsonl"))


def test_ctrl_c_while_measuring_is_no_traceback(tmp_path):
    words = ["paper", "table1", "--yes", "--only", "algorithm=fedavg,alpha=0"]
    process = start(*words, env={**os.environ, "TMPDIR": "."})
    wait_for(lambda: process.poll() is not None or any(Path().glob("tmp*/metrics.jsonl")))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said


def test_list_names_everything(capsys):
    assert main(["paper", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES)


@pytest.mark.parametrize(
    "words",
    [
        ["paper", "table9"],
        ["paper", "table1", "--scale", "huge"],
        ["paper", "table1", "--targets", "mine"],
        ["paper", "table1", "--seeds", "a"],
        ["sweep", "--seed", "a"],
        ["sweep", "--algorithm", ","],
        ["sweep", "--jobs", "0"],
    ],
)
def test_wrong_words_are_refused(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("fedseq: error: ")


SWEEP = ["sweep", "--algorithm", "fedavg,centralized", "--seed", "0,1", "--model", "mlp", "--out", "s", "--jobs", "2"]


@pytest.mark.slow
def test_an_interrupted_sweep_saves_and_goes_on(capsys):
    """Long enough to be caught in the middle, then continued with fewer rounds than were asked for at first."""
    process = start(*SWEEP, "--rounds", "100000")
    wait_for(lambda: all(rounds(f"s/fedavg-alpha0-seed{seed}") > 2 for seed in (0, 1)))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert "Continue with: fedseq sweep" in out
    reached = {seed: rounds(f"s/fedavg-alpha0-seed{seed}") for seed in (0, 1)}
    more = max(reached.values()) + 5
    assert main([*SWEEP, "--rounds", str(more)]) == 0
    for seed in (0, 1):
        run = read_run(Path(f"s/fedavg-alpha0-seed{seed}"))
        assert run.finished
        assert [line["round"] for line in run.metrics] == list(range(1, more + 1))
    assert Path("s/centralized-seed0/weights.safetensors").exists()
    capsys.readouterr()
    assert main([*SWEEP, "--rounds", str(more)]) == 0
    assert "4 of 4 finished, 0 to do" in capsys.readouterr().out
    assert main([*SWEEP, "--rounds", str(more), "--lr", "0.5"]) == 2  # not the same runs


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_worker_behind():
    """Its workers save their runs, which go on when it is asked for again."""
    process = start(*SWEEP, "--rounds", "100000")
    wait_for(lambda: all(rounds(f"s/fedavg-alpha0-seed{seed}") > 2 for seed in (0, 1)))
    workers = children_of(process.pid)
    process.kill()
    assert len(workers) == 2
    wait_for(lambda: not any(map(is_running, workers)))
    assert read_run(Path("s/fedavg-alpha0-seed0")).rounds > 2


def rounds(folder):
    try:
        return len(Path(folder, "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


@pytest.mark.slow
def test_a_failing_run_is_told_and_the_others_go_on(capsys):
    """A folder that cannot be written stands for anything that goes wrong in a worker."""
    Path("s").mkdir()
    Path("s/fedavg-alpha0-seed0").write_text("in the way")
    words = ["sweep", "--algorithm", "fedavg", "--seed", "0-1", "--rounds", "1", "--out", "s", "--jobs", "1"]
    assert main(words) == 2
    out = capsys.readouterr().out
    assert "not finished: digits fedavg-alpha0-seed0: its process ended" in out
    assert read_run(Path("s/fedavg-alpha0-seed1")).finished


def test_tasks_leave_no_worker_behind():
    me = os.getpid()
    children = subprocess.run(["ps", "-o", "args", "--ppid", str(me)], capture_output=True, text=True).stdout
    assert "fedseq.sweep.work" not in children
