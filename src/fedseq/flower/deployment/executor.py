"""`flower-superexec` that forks apps off a process in which PyTorch, Flower and FedSeq are imported already.

Each message still has a process of its own, which takes nothing over from the one before. The process they are forked
off does nothing else, so that it has no threads that a fork would lose; it is started again when it dies.
"""

import multiprocessing
from multiprocessing import forkserver
from pathlib import Path

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult, SubprocessExecutor
from flwr.supernode.runtime.run_clientapp import run_clientapp

WARM = ["fedseq.flower.apps.client", "fedseq.flower.deployment.executor", "httpcore"]  # what a fork would import


class ForkingExecutor(SubprocessExecutor):
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


def main() -> None:
    run_superexec.get_executor = lambda *_, **__: ForkingExecutor()
    flower_superexec()


if __name__ == "__main__":
    main()
