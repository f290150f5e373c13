"""A server that is killed, over real processes on loopback with TLS and keys."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from flower.expected import BRIEF, checksum, lines, on_one_machine
from flower.federations import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine


def test_a_killed_server_continues_from_its_last_checkpoint(fed: Running, tmp_path: Path) -> None:
    out = fed.folder / "server-killed"
    killed = threading.Thread(target=kill_server_after_a_round, args=(out,), daemon=True)
    killed.start()
    with pytest.raises(FedSeqError, match="did not complete"):
        fed.run(*BRIEF, f"out={out.name}")
    killed.join()
    assert [record["round"] for record in lines(out)] == [1]
    assert "rounds 2 to 2" in fed.run(*BRIEF, f"out={out.name}")
    assert [record["round"] for record in lines(out)] == [1, 2]
    assert checksum(out) == checksum(on_one_machine(tmp_path / "expected", grouping="random", update_check="none"))


def kill_server_after_a_round(out: Path) -> None:
    while not (out / "checkpoints" / "000001.json").exists():
        time.sleep(0.05)
    os.kill(server_process(out), signal.SIGKILL)


def server_process(out: Path) -> int:
    """The process that holds the run folder's lock."""
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if place.readlink().parent == out:
                return int(place.parts[2])
        except OSError:
            continue
    raise AssertionError("no process has the run folder open")
