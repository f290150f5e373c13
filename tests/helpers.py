"""What tests of several folders do alike: `fedseq` as a process, waiting for something, what a run has written."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedseq.basics.processes import python

FEDSEQ = python("-m", "fedseq")
WRITTEN = ("metrics.jsonl", "weights.safetensors")


def start(*words: object, **options: Any) -> "subprocess.Popen[str]":
    """`fedseq WORDS` in a process group of its own, as a shell starts it. What it says can be read."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*FEDSEQ, *map(str, words)], **{**pipes, **options})


def wait_for(holds: Callable[[], object], seconds: float = 270) -> None:
    """Shorter than pytest's own limit, so that it is told what was waited for."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def files_of(folder: Path, names: tuple[str, ...] = WRITTEN) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def is_running(pid: int) -> bool:
    """Not if only its exit code is left of it, which nobody has asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def marked(name: str, mark: str) -> list[int]:
    """Processes that inherited this mark in this variable of their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is somebody else's
            continue
        for entry in environment:
            variable, _, value = entry.decode(errors="replace").partition("=")
            if variable == name and mark in value.split(":") and is_running(int(folder.name)):
                found.append(int(folder.name))
    return found
