"""The command line as a process, and what it leaves behind."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def fedseq(*words: str) -> "subprocess.Popen[str]":
    """In a process group of its own, as a shell starts it."""
    command = [sys.executable, "-c", "import sys, fedseq.cli; sys.exit(fedseq.cli.main())", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(holds: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def written(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "metrics.jsonl").read_bytes(), (folder / "weights.safetensors").read_bytes()


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
