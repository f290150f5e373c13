"""Kill it anywhere, feed it anything, lose nothing. The long versions run under `make soak`."""

import mmap
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedseq
from fedseq.cli import main
from fedseq.options.config import OPTIONS
from fedseq.runs import checkpoints
from fedseq.runs.checkpoints import Snapshot, load_checkpoint, save_checkpoint
from fedseq.training.reporter import Quiet
from helpers import FEDSEQ, files_of, start, wait_for

BLANK: dict[str, Any] = {
    "options": {}, "data": "", "algorithm": {}, "model": {}, "superclients": None,
    "metrics": {"length": 0, "sha256": ""}, "timing": {"length": 0},
}  # vouches for nothing else  # fmt: skip

SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
SHORT = {"dataset": "digits", "grouping": "random", "rounds": 12, "checkpoint_every": 2}
ALGORITHMS = ("fedavg", "fedseq+feddyn", "scaffold", "fedseqinter")


def many(short: int, long: int) -> int:
    return long if SOAK else short


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_killed_at_any_time_it_ends_with_the_same_bytes(tmp_path, algorithm):
    options = {name: value for name, value in SHORT.items() if name != "grouping" or "fedseq" in algorithm}
    whole = fedseq.run(options, tmp_path / "whole", algorithm=algorithm, engine="serial")
    cut = tmp_path / "cut"
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    dice = random.Random(algorithm)
    kills = 0
    process = start("run", *flags, "--algorithm", algorithm, "--out", cut)
    while kills < many(2, 13):
        wait_for((cut / "config.yaml").exists)
        time.sleep(dice.random() * 1.5)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if fedseq.read_run(cut).finished:
            break
        process = start("resume", cut)
    process.wait()
    fedseq.resume(cut)
    assert files_of(cut) == files_of(whole.folder)


@pytest.mark.slow
def test_killed_inside_the_save_at_most_one_checkpoint_is_lost(tmp_path):
    """A child saves one checkpoint after another; it tells us when it is between open and rename, and we kill it."""
    kills = many(20, 200)
    inside = sum(_kill_inside_a_save(tmp_path / str(kill), random.Random(kill)) for kill in range(kills))
    assert inside >= 0.8 * kills, f"only {inside} of {kills} kills landed inside a save"


def _kill_inside_a_save(folder: Path, dice: random.Random) -> int:
    shared = mmap.mmap(-1, 2)  # is it inside a save, the last round that is saved
    child = os.fork()
    if child == 0:
        _save_forever(folder, shared)
    target = dice.randrange(2, 9)
    wait_for(lambda: shared[1] >= target and shared[0])
    inside, last = shared[0], shared[1]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = load_checkpoint(folder)
    assert loaded is not None
    progress, _ = loaded
    assert progress.round >= last  # `last` was complete; what was being written may or may not be there
    assert torch.equal(progress.state["weights"], torch.full((200_000,), float(progress.round)))
    assert torch.equal(progress.memory[progress.round]["g"], torch.full((50_000,), float(progress.round)))
    return inside


def _save_forever(folder: Path, shared: mmap.mmap) -> None:
    torch.set_num_threads(1)
    write = checkpoints.write_atomically

    def flagged(path, content):
        shared[0] = 1
        write(path, content)
        shared[0] = 0

    checkpoints.write_atomically = flagged
    memory: dict[int, dict[str, torch.Tensor]] = {}
    for round_ in range(1, 250):
        memory[round_] = {"g": torch.full((50_000,), float(round_))}
        state = {"weights": torch.full((200_000,), float(round_))}
        changed = {client: client for client in memory}
        save_checkpoint(folder, Snapshot(round_, state, memory, changed), BLANK)
        shared[1] = round_
    os._exit(0)


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    dice = random.Random(0)
    for round_ in (1, 2):
        save_checkpoint(
            tmp_path, Snapshot(round_, {"w": torch.randn(500)}, {7: {"g": torch.randn(90)}}, {7: round_}), BLANK
        )
    names = ["000002.json", "000002.safetensors", "memory/7-2.safetensors"]
    intact = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for damage in ("flip", "cut"):
        for _ in range(many(50, 1000)):
            path = tmp_path / dice.choice(names)
            content = path.read_bytes()
            at = dice.randrange(len(content))
            flipped = content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]
            path.write_bytes(flipped if damage == "flip" else content[:at])
            with pytest.warns(UserWarning, match="damaged"):
                assert load_checkpoint(tmp_path)[0].round == 1
            for each, whole in intact.items():  # what is damaged was set aside, and what refers to it
                each.write_bytes(whole)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_message_and_the_last_checkpoint_is_intact(tmp_path):
    """The limit on a file's size stands in for a full disk: the system refuses to write on."""
    limit = 60_000  # the state of small-cnn takes 40 kB; a growing metrics.jsonl gets there after some rounds

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = ["run", "--grouping", "random", "--rounds", "100000", "--checkpoint-every", "5", "--out", "run"]
    ended = subprocess.run(
        [*FEDSEQ, *words, "--engine", "serial"], capture_output=True, text=True, preexec_fn=small_disk
    )
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    progress, _ = load_checkpoint(Path("run/checkpoints"))
    assert progress.round >= 5
    more = (
        fedseq.read_run(Path("run")).rounds + 2
    )  # lines may be there that no checkpoint covers: their rounds are repeated
    assert fedseq.resume("run", rounds=more, engine="serial").rounds == more


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which not even root may write")
def test_a_folder_that_cannot_be_written_is_refused(capsys):
    assert main(["run", "--grouping", "random", "--rounds", "1", "--out", "/proc/run"]) in (1, 2)
    error = capsys.readouterr().err
    assert "/proc/run" in error
    assert "Traceback" not in error


class Failing(Quiet):
    def round(self, record):
        raise RuntimeError("the tracker is down")


def test_no_reporter_can_stop_a_run(tmp_path):
    with pytest.warns(UserWarning, match="the tracker is down"):
        run = fedseq.run(SHORT, tmp_path / "run", rounds=3, engine="serial", reporter=Failing())
    assert run.finished
    assert run.rounds == 3


WORDS = st.one_of(
    st.sampled_from([f"--{name.replace('_', '-')}" for name in OPTIONS]),
    st.sampled_from(["--out", "--print-config", "--help", "--all", "--figure", "x.yaml", "=", "-", "--", "--version"]),
    st.sampled_from(["0", "1", "-1", "1e9", "nan", "inf", "null", "true", "digits", "fedseq", "npz:x", "kl", "0.2"]),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=6),
)


@pytest.mark.slow
@settings(max_examples=many(700, 7000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["run", "run", "run", "ls", "resume", "compare", "evaluate"]), st.lists(WORDS, max_size=6))
def test_no_command_line_gives_a_traceback(capsys, command, words):
    """`run` only prints its config: what it would compute is tested elsewhere."""
    line = [command, *words, *(["--print-config"] if command == "run" else [])]
    try:
        code = main(line)
    except SystemExit as exit_:  # --help and --version
        code = exit_.code
    assert code in (0, 1, 2), line
    capsys.readouterr()


@pytest.mark.slow
@settings(max_examples=many(300, 3000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(sorted(OPTIONS)),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2),
        max_size=5,
    ).map(lambda values: "\n".join(f"{name}: {value!r}" for name, value in values.items()).encode("utf-8", "replace"))
)
def test_no_config_file_gives_a_traceback(capsys, content):
    Path("fuzz.yaml").write_bytes(content)
    assert main(["run", "fuzz.yaml", "--print-config"]) in (0, 2), content
    capsys.readouterr()


@pytest.mark.skipif(not SOAK, reason="long: make soak")
@pytest.mark.parametrize("trouble", [{"client_dropout": 0.3}, {"attack": "nan"}, {"attack": "scale:1000"}])
def test_trouble_costs_at_most_three_points_over_five_seeds(tmp_path, trouble):
    def final(name, **options):
        runs = [
            fedseq.run({**SHORT, "rounds": 120, "eval_every": 5}, tmp_path / f"{name}{seed}", seed=seed, **options)
            for seed in range(5)
        ]
        return np.mean([run.final_accuracy() for run in runs])

    assert final("trouble", **trouble) > final("clean") - 0.03
