"""What a process and its children cost: core-seconds, memory, and the speed the CPU could have."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch

TICKS = os.sysconf("SC_CLK_TCK")
# LeNet-5 on 32x32x3, multiply and add counted apart: conv1, conv2, three dense layers. The backward pass costs twice
# the forward one, except that nobody needs the gradient of the pictures.
CONV1, CONV2, DENSE = 2 * 28 * 28 * 64 * 75, 2 * 10 * 10 * 64 * 1600, 2 * (1600 * 384 + 384 * 192 + 192 * 10)
FORWARD_FLOPS = CONV1 + CONV2 + DENSE
TRAINING_FLOPS = 3 * FORWARD_FLOPS - CONV1


def gemm_peak(size: int = 2048, repeats: int = 12) -> float:
    """The best FLOP/s that one core reached in a large fp32 matrix product."""
    torch.set_num_threads(1)
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / min(_cpu_seconds(lambda: a @ b) for _ in range(repeats))


def _cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


UNTIL_THE_FIRST_ROUND = """
import sys, time, fedseq
from fedseq.training.reporter import Quiet

class First(Quiet):
    def begin(self, *_):
        print(time.time())
        sys.exit()

data, algorithm, folder = sys.argv[1:]
grouped = {"grouping": "random"} if algorithm == "fedseq" else {}
fedseq.run(dataset="cifar10", data_dir=data, algorithm=algorithm, folder=folder, reporter=First(), **grouped)
"""


def start_up(data: str, algorithm: str) -> float:
    """Seconds by the clock from the start of Python to the first round on CIFAR-10, which lies decoded in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = [sys.executable, "-c", UNTIL_THE_FIRST_ROUND, data, algorithm, folder]
        return float(subprocess.check_output(command)) - began


def children() -> list[int]:
    """All processes below this one."""
    found, parents = [], [os.getpid()]
    while parents:
        listed = [Path(f"/proc/{pid}/task/{pid}/children") for pid in parents]
        parents = [int(child) for path in listed if path.exists() for child in path.read_text().split()]
        found += parents
    return found


def cpu_by_process() -> dict[int, float]:
    """Core-seconds of each child so far, and of this process under key 0."""
    spent = {0: time.process_time()}
    for pid in children():
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            user, system = stat.read_text().rsplit(")", 1)[1].split()[11:13]
            spent[pid] = (int(user) + int(system)) / TICKS
    return spent


class PeakMemory:
    """Context: the largest proportional set size (PSS) of this process and its children, in bytes."""

    def __init__(self, every: float = 0.2):
        self.every, self.peak = every, 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self.thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.stop.wait(self.every):
            self.peak = max(self.peak, sum(_pss(pid) for pid in (os.getpid(), *children())))


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
