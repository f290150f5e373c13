"""`flower-supernode` whose hops are cheap: it looks for work more often while there is some, and keeps PyTorch warm.

Flower's own asks its SuperLink every three seconds, and starts a process for each message, which imports everything
anew: a chain pays both at every hop. Takes the options of `flower-supernode`, which works too, only slower.
"""

import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from fedseq.basics.processes import python

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 3.0  # seconds between two looks for work; the longest is Flower's
PAUSE_A_NODE = 0.1  # so that all nodes together ask ten times a second: the SuperLink needs 20 ms to answer
BUSY_SECONDS = 60.0  # after which a node without work asks as seldom as Flower's


def main() -> None:
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    from fedseq.flower.deployment.patience import let_apps_start_slowly

    let_apps_start_slowly()
    nodes = re.findall(r"num-partitions=(\d+)", " ".join(sys.argv)) or ["1"]
    start_client_internal.time = ShortPauses(int(nodes[-1]))  # type: ignore[assignment]
    start_client_internal.subprocess = SimpleNamespace(Popen=start_executor)  # type: ignore[assignment]
    flower_supernode()


def start_executor(command: list[str]) -> Any:
    """Flower's helper, which starts an app for each message, with our way to do so."""
    words = python("-m", "fedseq.flower.deployment.executor", *command[1:])
    return subprocess.Popen(words, env={**os.environ, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(SHORTEST_PAUSE / 2)})


class ShortPauses:
    """Stands for the module `time` where Flower waits for work (3 s at a time) and for an app's answer (0.5 s)."""

    def __init__(self, nodes: int):
        self.pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, PAUSE_A_NODE * nodes))
        self.busy_until = 0.0

    def sleep(self, seconds: float) -> None:
        now = time.monotonic()
        if seconds < LONGEST_PAUSE:
            self.busy_until = now + BUSY_SECONDS
        time.sleep(min(seconds, self.pause) if now < self.busy_until else seconds)


if __name__ == "__main__":
    main()
