"""Real federations for tests: made in a folder, started on loopback, and stopped whatever happens.

with running(tmp_path / "fed", nodes=3, options={"rounds": 2}) as fed:
    output = fed.run("seed=1")          # flwr run; FedSeqError when it did not complete; fed.output has all lines
    fed.kill(1); fed.start(1)           # a node, by SIGKILL, with its helpers
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedseq.flower.apps.settings import Settings
from fedseq.flower.deployment import folder, local, processes, runs
from fedseq.flower.deployment.federation import Federation

PORTS = range(20000, 30000)  # below those that systems give to outgoing connections

ECHO_SERVER = """
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    nodes = []
    while len(nodes) < context.run_config["num-clients"]:  # in a simulation they come a little later
        nodes = list(grid.get_nodes())
        time.sleep(0.1)
    answers = grid.send_and_receive([Message(RecordDict(), node.node_id, "query") for node in nodes])
    for answer in answers:
        print("answer of partition", answer.content["config"]["partition-id"])
    print("rounds", context.run_config["rounds"], flush=True)
    while context.run_config["rounds"] == 99:
        time.sleep(0.1)
    if context.run_config["rounds"] == 13:
        raise RuntimeError("thirteen rounds")
"""
ECHO_CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    return Message(RecordDict({"config": ConfigRecord(dict(context.node_config))}), reply_to=message)
"""


def make(path: Path, nodes: int = 2, **choices: Any) -> Federation:
    """`folder.init` on ports that are free now."""
    return folder.init(path, nodes, port=free_ports(nodes + 10), **choices)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    starts = list(PORTS[:-count:10])
    random.shuffle(starts)
    return next(start for start in starts if all(local.is_free(start + i) for i in range(count)))


def use_echo_app(federation: Federation) -> None:
    """Every node answers with its number; 13 rounds fail."""
    (federation.folder / "app" / "server_app.py").write_text(ECHO_SERVER)
    (federation.folder / "app" / "client_app.py").write_text(ECHO_CLIENT)


@dataclass
class Running:
    federation: Federation
    output: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.federation.folder

    def run(self, *changes: str) -> str:
        """The output of one run, to its end."""
        return self._shown(lambda show: runs.run(self.federation, changes, show))

    def simulate(self, *changes: str) -> str:
        return self._shown(lambda show: runs.simulate(self.federation, changes, show))

    def kill(self, node: int) -> None:
        """As a power cut does: nobody is told, and its helpers end with it."""
        process = local.status(self.federation)[local.node_name(node)]
        processes.kill([process])

    def start(self, node: int) -> None:
        local.up(self.federation, [node])

    def log(self, name: str) -> str:
        """Of `superlink` or `node-K`."""
        return local.log_file(self.federation, name).read_text(errors="replace")

    def _shown(self, work: Callable[[Callable[[str], None]], None]) -> str:
        begin = len(self.output)
        work(self.output.append)
        return "\n".join(self.output[begin:])


@contextmanager
def running(
    path: Path, nodes: int = 2, *, options: dict[str, Any] | None = None, settings: Settings | None = None,
    insecure: bool = False, echo: bool = False, start: bool = True, **choices: Any,
) -> Iterator[Running]:  # fmt: skip
    """A federation that is up (unless `start` is False), with FedSeq's app or (`echo`) one that needs nothing of it."""
    federation = make(path, nodes, options=options, settings=settings, insecure=insecure, **choices)
    if echo:
        use_echo_app(federation)
    try:
        if start:
            local.up(federation)
        yield Running(federation)
    finally:
        local.down(federation)
