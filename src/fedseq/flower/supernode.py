"""`flower-supernode` whose hops are cheap: it looks for work more often while there is some, and keeps PyTorch warm.

Flower's own asks its SuperLink every three seconds, and starts a process for each message, which imports everything
anew: a chain pays both at every hop. Takes the options of `flower-supernode`, which works too, only slower.
"""

import multiprocessing
import os
import re
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult, SubprocessExecutor
from flwr.supernode.runtime.run_clientapp import run_clientapp

from fedseq.basics.processes import end_with_holder, python

EXECUTOR = "executor"  # the first word of our way to be Flower's `flower-superexec`
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 3.0  # seconds between two looks for work; the longest is Flower's
PAUSE_A_NODE = 0.1  # so that all nodes together ask ten times a second: the SuperLink needs 20 ms to answer
BUSY_SECONDS = 60.0  # after which a node without work asks as seldom as Flower's
WARM = ["fedseq.flower.client_app", "fedseq.flower.supernode", "httpcore"]  # what a fork would import


class ForkingExecutor(SubprocessExecutor):
    """`flower-superexec` that forks apps off a process in which PyTorch, Flower and FedSeq are imported already.

    Each message still has a process of its own, which takes nothing over from the one before. The process they are
    forked off does nothing else, so that it has no threads that a fork would lose; it is started again when it dies.
    """

    def __init__(self) -> None:
        self.forks = multiprocessing.get_context("forkserver")
        self.forks.set_forkserver_preload(WARM)
        forkserver.ensure_running()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        if spec.task_type != TaskType.CLIENT_APP:
            return super().launch(spec)
        certificates = Path(spec.root_certificates_path).read_bytes() if spec.root_certificates_path else None
        task = (spec.runtime_api_address, spec.token, spec.insecure, certificates, spec.parent_pid)
        self.forks.Process(target=run_clientapp, args=task).start()
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        multiprocessing.active_children()  # collects those that have ended

    def close(self) -> None:
        for app in multiprocessing.active_children():
            app.terminate()


def start_executor(command: list[str]) -> Any:
    """Flower's helper, which starts an app for each message, with our way to do so."""
    words = python("-m", "fedseq.flower.supernode", EXECUTOR, *command[1:])
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


def main() -> None:
    if sys.argv[1:2] == [EXECUTOR]:
        del sys.argv[1]
        run_superexec.get_executor = lambda *_, **__: ForkingExecutor()
        flower_superexec()
        return
    from flwr.supernode import main as helpers_port
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    from fedseq.flower.front_door import FrontDoor
    from fedseq.flower.superlink import let_apps_start_slowly

    end_with_holder()
    create_app = helpers_port.create_app

    def guarded_app(*words: Any, **more: Any) -> Any:
        app = create_app(*words, **more)
        app.add_middleware(FrontDoor, keys=False)
        return app

    helpers_port.create_app = guarded_app
    let_apps_start_slowly()
    nodes = re.findall(r"num-partitions=(\d+)", " ".join(sys.argv)) or ["1"]
    start_client_internal.time = ShortPauses(int(nodes[-1]))  # type: ignore[assignment]
    start_client_internal.subprocess = SimpleNamespace(Popen=start_executor)  # type: ignore[assignment]
    flower_supernode()


if __name__ == "__main__":
    main()
