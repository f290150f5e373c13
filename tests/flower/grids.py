"""Flower's own grid, in memory: nodes that say what a test makes them say, or that run a ClientApp on the spot."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.inmemory_grid import InMemoryGrid


class Nodes:
    """A run with these nodes on Flower's own state; they say nothing unless they are made to."""

    def __init__(self, count: int, grid: type[InMemoryGrid] = InMemoryGrid):
        states = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
        self.grid = grid(states)
        self.state = self.grid.state
        self.run = self.state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, "serverapp")
        # What an app's messages name as their sender.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = self.run, SUPERLINK_NODE_ID, 1
        self.grid.set_run(self.state.get_run_info(run_ids=[self.run])[0])
        self.ids = [self.state.create_node(NOOP_FLWR_AID, "", f"{node}".encode(), 1e6) for node in range(count)]
        for node in self.ids:
            self.state.activate_node(node, 1e6)

    def say(self, node: int, client: int, examples: int) -> None:
        [asked] = self.state.get_message_ins(self.ids[node], 1)
        said = RecordDict({"client": ConfigRecord({"client": client, "examples": examples})})
        store(self.state, Message(said, reply_to=asked))


class AppGrid(InMemoryGrid):
    """A node's ClientApp answers a message while it is sent: a federation without a server and without waiting."""

    app: ClientApp
    contexts: Mapping[int, Context]  # by node

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(super().push_messages(messages))
        for node, context in self.contexts.items():
            for asked in self.state.get_message_ins(node, None):
                store(self.state, self.app(asked, context))
        return sent


def app_grid(app: ClientApp, clients: int, run_config: Mapping[str, Any], memory: Path) -> AppGrid:
    nodes = Nodes(clients, AppGrid)
    assert isinstance(nodes.grid, AppGrid)
    nodes.grid.app = app
    nodes.grid.contexts = {
        node: Context(
            nodes.run, node, {"partition-id": client, "memory-dir": str(memory)}, RecordDict(), dict(run_config)
        )
        for client, node in enumerate(nodes.ids)
    }
    return nodes.grid


def store(state: Any, answer: Message) -> None:
    answer.metadata.__dict__["_message_id"] = str(uuid4())
    assert state.store_message_res(answer)
