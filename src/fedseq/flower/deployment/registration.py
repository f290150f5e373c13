"""What the SuperLink knows of nodes: `flwr supernode` for many keys in one process.

register KEY...     as `flwr supernode register`
unregister KEY...   by their keys, not by Flower's numbers
list                the state of each key, as JSON
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from flwr.cli.app import app
from flwr.cli.flower_config import read_superlink_connection
from flwr.cli.utils import init_http_client_from_connection
from flwr.proto.control_pb2 import ListNodesRequest

from fedseq.flower.apps.public_keys import read_key
from fedseq.flower.deployment.federation import GONE, NAME

KNOWN = "already in use"


def register(keys: list[str]) -> None:
    for key in keys:
        try:
            _flwr("register", key)
        except click.ClickException as error:
            if KNOWN not in error.format_message():  # registrations outlive the SuperLink
                raise


def unregister(keys: list[str]) -> None:
    numbers = {node.public_key: node.node_id for node in _nodes() if node.status != GONE}
    for key in keys:
        if (number := numbers.get(read_key(Path(key)))) is not None:
            _flwr("unregister", str(number))


def show(_: list[str]) -> None:
    states = {node.public_key.decode(): node.status for node in _nodes()}
    sys.stdout.write(json.dumps(states) + "\n")


def _nodes() -> list[Any]:
    client = init_http_client_from_connection(read_superlink_connection(NAME))
    try:
        return list(client.ListNodes(ListNodesRequest()).nodes_info)
    finally:
        client.close()


def _flwr(*words: str) -> None:
    command: Any = app
    command(["supernode", *words, NAME], standalone_mode=False)


ACTIONS: dict[str, Callable[[list[str]], None]] = {"register": register, "unregister": unregister, "list": show}


def main(words: list[str]) -> None:
    try:
        ACTIONS[words[0]](words[1:])
    except click.ClickException as error:
        sys.exit(error.format_message())


if __name__ == "__main__":
    main(sys.argv[1:])
