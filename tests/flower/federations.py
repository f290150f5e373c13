"""Real federations for tests: made in a folder, started on loopback, and stopped whatever happens.

with running(tmp_path / "fed", nodes=3, options={"rounds": 2}) as fed:
    output = fed.run("seed=1")          # flwr run; FedSeqError when it did not complete; fed.output has all lines
    fed.child(1).kill()                 # a node, by SIGKILL, with its helpers
    fed.all_online()                    # it is started again
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedseq.flower import app_run, children, federation_folder, up
from fedseq.flower.federation_folder import Federation
from fedseq.flower.run_options import Settings
from fedseq.flower.up import Deployment

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
    """`federation_folder.init` on ports that are free now."""
    return federation_folder.init(path, nodes, port=free_ports(nodes + 10), **choices)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    starts = list(PORTS[:-count:10])
    random.shuffle(starts)
    return next(start for start in starts if all(children.is_free(start + i) for i in range(count)))


def use_echo_app(federation: Federation) -> None:
    """Every node answers with its number; 13 rounds fail."""
    (federation.folder / "app" / "server_app.py").write_text(ECHO_SERVER)
    (federation.folder / "app" / "client_app.py").write_text(ECHO_CLIENT)


@dataclass
class Running:
    federation: Federation
    deployment: Deployment
    output: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.federation.folder

    def run(self, *changes: str) -> str:
        """The output of one run, to its end. Its folder is beside the app: `out=name` is `fed.folder / "name"`."""
        return self._shown(lambda show: app_run.run(self.federation, changes, show))

    def simulate(self, *changes: str) -> str:
        return self._shown(lambda show: app_run.simulate(self.federation, changes, show))

    def child(self, node: int) -> children.Child:
        return self.deployment.children[up.node_name(node)]

    def all_online(self) -> None:
        """What has ended is started again, as `up` does; Flower lets a node that was killed in again after a minute."""

        def online() -> bool:
            self.deployment.look()
            return all(
                self.child(node).alive and self.child(node).says(children.ONLINE) for node in self.deployment.nodes
            )

        assert children.wait_until(online, 300)

    def log(self, name: str) -> str:
        """Of `superlink` or `node-K`."""
        return up.log_file(self.federation, name).read_text(errors="replace")

    def _shown(self, work: Callable[[Callable[[str], None]], None]) -> str:
        begin = len(self.output)
        work(self.output.append)
        return "\n".join(self.output[begin:])


@contextmanager
def running(
    path: Path,
    nodes: int = 2,
    *,
    options: dict[str, Any] | None = None,
    settings: Settings | None = None,
    insecure: bool = False,
    echo: bool = False,
    start: bool = True,
    here: list[int] | None = None,
    **choices: Any,
) -> Iterator[Running]:
    """A federation that is up (unless `start` is False), with FedSeq's app or (`echo`) one that needs nothing of it."""
    federation = make(path, nodes, options=options, settings=settings, insecure=insecure, **choices)
    if echo:
        use_echo_app(federation)
    deployment = Deployment(federation, here, print)
    try:
        if start:
            deployment.start()
        yield Running(federation, deployment)
    finally:
        deployment.stop()
