"""Processes that we hold: they end when we say so or end ourselves, and nobody else is ever ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedseq.flower.children import Child, stop, wait_until

HELPER = (
    "import subprocess, sys, time; subprocess.Popen(['sleep', '1000']); print('started', flush=True); time.sleep(1000)"
)


def held(folder: Path, name: str, *words: str) -> Child:
    return Child([sys.executable, "-P", *words], dict(os.environ), folder, folder / f"{name}.log")


def test_a_child_ends_with_its_helpers_and_nobody_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedseq.flower.children.STOP_SECONDS", 0.5)  # in which a helper that does not look ends not
    ours, other = held(tmp_path, "ours", "-c", HELPER), held(tmp_path, "other", "-c", HELPER)
    try:
        assert wait_until(lambda: ours.says(b"started") and other.says(b"started"), 60)
        family = ours.family()
        assert len(family) == 2
        stop([ours])
        assert not ours.alive
        stop([ours])  # again: nothing is left to be ended
        assert [
            process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ] == []
        assert len(other.family()) == 2
    finally:
        ours.kill()
        other.kill()


def test_one_that_ignores_what_it_is_asked_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedseq.flower.children.STOP_SECONDS", 0.5)
    deaf = "from signal import *; import time; signal(SIGTERM, SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
    child = held(tmp_path, "deaf", "-c", deaf)
    assert wait_until(lambda: child.says(b"deaf"), 60)
    stop([child])
    assert child.process.returncode == -signal.SIGKILL


def test_the_log_before_is_kept(tmp_path: Path) -> None:
    for word in ("first", "second"):
        child = held(tmp_path, "log", "-c", f"print({word!r})")
        assert child.process.wait(60) == 0
    assert child.last_lines() == "  second"
    assert (tmp_path / "log.old.log").read_text() == "first\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a process does not learn of it")
def test_a_child_ends_with_its_holder_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import time; from fedseq.basics.processes import end_with_holder;"
        "end_with_holder(); print('held', flush=True); time.sleep(1000)"
    )
    holder = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from flower.test_children import held;"
        f"child = held(Path(sys.argv[2]), 'inner', '-c', {program!r});"
        "print(child.process.pid, flush=True); time.sleep(1000)"
    )
    words = [sys.executable, "-c", holder, str(Path(__file__).parents[1]), str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    log = tmp_path / "inner.log"
    assert wait_until(lambda: log.read_text() == "held\n", 60)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.stdout.close()
