"""Nothing that tests have started outlives them, not even if they are killed."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import watchdog
from helpers import is_running, marked, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
ENDLESS = """
import os, subprocess, sys, time
from pathlib import Path
from fedseq.cli import main

def test_endless():
    detached = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    forked = os.fork()
    if not forked:
        time.sleep(1000)
    if {federation}:
        assert main(["federation", "init", "fed", "--nodes", "1", "--insecure", "--port", "{port}"]) == 0
        assert main(["federation", "up", "fed", "--detach"]) == 0
    Path({ready!r}).write_text(f"{{detached.pid}} {{forked}}")
    time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("federation", [False, True], ids=["processes", "federation"])
def test_what_tests_started_dies_with_them(federation: bool, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    port = 0
    if federation:
        pytest.importorskip("flwr")
        from flower.federations import free_ports

        port = free_ports(12)
    ready, mark = tmp_path / "ready", secrets.token_hex(8)
    test = tmp_path / "test_endless.py"
    test.write_text(ENDLESS.format(federation=federation, port=port, ready=str(ready)))
    words = ["-m", "pytest", "-p", "conftest", "-o", f"cache_dir={pytestconfig.getini('cache_dir')}", str(test)]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    marks = f"{os.environ[watchdog.VARIABLE]}:{mark}"
    running = subprocess.Popen(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": paths, watchdog.VARIABLE: marks}, cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: running.poll() is not None or ready.exists())
    assert running.poll() is None
    started = [int(pid) for pid in ready.read_text().split()]
    left = marked(watchdog.VARIABLE, mark)
    assert len(left) >= (4 if federation else 2)
    assert all(map(is_running, started))
    running.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, [*started, *left])), 30)
    assert not marked(watchdog.VARIABLE, mark)
