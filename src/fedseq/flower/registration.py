"""Which key is whose. A node's key is made where the node runs, and the server gets no more than its public half.

As a program it is `flwr supernode` for many keys in one process, since Flower's client takes its settings from the
environment:

register KEY...     as `flwr supernode register`
unregister KEY...   by their keys, not by Flower's numbers
list                the state of each key, as JSON
"""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_atomically
from fedseq.basics.processes import python
from fedseq.flower import keys
from fedseq.flower.children import environment
from fedseq.flower.federation_folder import NAME, Federation
from fedseq.flower.keys import read_key

GONE = "unregistered"  # what the SuperLink says of a key that was taken back, for good
KNOWN = "already in use"  # what it says of a key that it was told of before
MOST_BYTES = 16 << 10


def make_missing_keys(federation: Federation, nodes: Iterable[int]) -> None:
    """Of nodes that run on this machine: it is their site."""
    for node in nodes:
        keys.ensure_node_key(federation.node_key(node))


def is_elsewhere(federation: Federation, node: int) -> bool:
    """Whether another machine has the private half of the node's key."""
    return federation.public_key(node).exists() and not federation.node_key(node).exists()


def admit(federation: Federation, file: Path, node: int | None = None, replace: bool = False) -> int:
    """Take a site's public key for its node, which the key, its file or `node` names. Returns the node."""
    if not federation.tls:
        raise FedSeqError("this federation has neither TLS nor keys. Make it anew without --insecure.")
    key, comment = _read(file)
    said = {"the word after the key": _number(comment), "its name": _number(file.stem), "--node": node}
    numbers = {who: number for who, number in said.items() if number is not None}
    if not numbers:
        raise FedSeqError(f"{file} does not say which node it is of. Add --node K.")
    if len(set(numbers.values())) > 1:
        words = ", ".join(f"{who} says node {number}" for who, number in numbers.items())
        raise FedSeqError(
            f"whose key is {file}? {words}. Ask the site by telephone which node it is and for its fingerprint; then "
            "let all of them say the same."
        )
    node = next(iter(numbers.values()))
    if not 0 <= node < federation.nodes:
        raise FedSeqError(f"{file} is of node {node}: this federation has nodes 0 to {federation.nodes - 1}.")
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    for other in _known(federation):
        theirs = federation.public_key(other).read_bytes().startswith(text)
        if theirs and other != node:
            raise FedSeqError(f"{file} is the key of node {other} already. Each site makes a key of its own.")
        if other == node and not theirs and not replace:
            raise FedSeqError(f"node {node} has another key already. If its site made a new one, add --replace.")
    before = federation.public_key(node)
    if before.exists() and not before.read_bytes().startswith(text):
        if states(federation).get(read_key(file).decode()) == GONE:
            raise FedSeqError(
                f"{file} is a key that was replaced, and Flower lets none in a second time. Its site makes another: it "
                "joins with its kit in a new folder (--out), or in its own without the files node-K and node-K.pub."
            )
        _ask(federation, "unregister", str(before))
        federation.node_key(node).unlink(missing_ok=True)  # made here, and of no use any more
    write_atomically(before, text + f" node-{node}\n".encode())
    return node


def register(federation: Federation) -> None:
    """Tell the SuperLink, which has to run, of all keys that are known; it keeps them."""
    _ask(federation, "register", *(str(federation.public_key(node)) for node in _known(federation)))


def presence(federation: Federation, node: int, states: Mapping[str, str]) -> str:
    """What the SuperLink says of a node; without `states` it does not run."""
    if not federation.public_key(node).exists():
        return "has not joined: no key of it is registered"
    place = "at its site: " if is_elsewhere(federation, node) else ""
    unknown = "not registered" if states else "unknown, as the SuperLink does not run"
    return place + states.get(read_key(federation.public_key(node)).decode(), unknown)


def states(federation: Federation) -> dict[str, str]:
    """What the SuperLink says of every key that it was ever told of: registered (never seen yet), online, offline."""
    found: dict[str, str] = json.loads(_ask(federation, "list").splitlines()[-1])
    return found


def fingerprint(file: Path) -> str:
    """As `ssh-keygen -lf` shows it: short enough to be compared over the telephone."""
    body = base64.b64decode(file.read_bytes().split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")


def _known(federation: Federation) -> list[int]:
    return [node for node in range(federation.nodes) if federation.public_key(node).exists()]


def _read(file: Path) -> tuple[ec.EllipticCurvePublicKey, str]:
    """The key, and the words beside it."""
    try:
        with open_plain(file) as opened:
            content = opened.read(MOST_BYTES)
    except OSError as error:
        raise FedSeqError(f"{file} cannot be read: {error.strerror}.") from None
    if b"PRIVATE KEY" in content:
        raise FedSeqError(
            f"{file} is a private key, which must not leave its site. Ask for the file that ends in .pub."
        )
    try:
        key = serialization.load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise FedSeqError(f"{file} is not a public key. Ask the site for the file node-K.pub that join made.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.key_size < keys.CURVE.key_size:
        raise FedSeqError(f"{file} is not a key that join made (ECDSA, {keys.CURVE.key_size} bits).")
    return key, b" ".join(content.split()[2:]).decode(errors="replace")


def _number(words: str) -> int | None:
    found = re.fullmatch(r"node-(\d{1,9})", words)
    return int(found[1]) if found else None


def _ask(federation: Federation, *words: str) -> str:
    """In a process of its own, as Flower's client takes its settings from the environment."""
    command = python("-m", "fedseq.flower.registration", *words)
    asked = subprocess.run(
        command, env=environment(federation.folder / "flwr"), capture_output=True, text=True, errors="replace"
    )
    if asked.returncode:
        raise FedSeqError(f"the SuperLink could not {words[0]} keys:\n{asked.stdout.strip()}\n{asked.stderr.strip()}")
    return asked.stdout


def _register(keys: list[str]) -> None:
    for key in keys:
        try:
            _flwr("register", key)
        except click.ClickException as error:
            if KNOWN not in error.format_message():  # registrations outlive the SuperLink
                raise


def _unregister(keys: list[str]) -> None:
    numbers = {node.public_key: node.node_id for node in _nodes() if node.status != GONE}
    for key in keys:
        if (number := numbers.get(read_key(Path(key)))) is not None:
            _flwr("unregister", str(number))


def _list(_: list[str]) -> None:
    states = {node.public_key.decode(): node.status for node in _nodes()}
    sys.stdout.write(json.dumps(states) + "\n")


def _nodes() -> list[Any]:
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.proto.control_pb2 import ListNodesRequest

    client = init_http_client_from_connection(read_superlink_connection(NAME))
    try:
        return list(client.ListNodes(ListNodesRequest()).nodes_info)
    finally:
        client.close()


def _flwr(*words: str) -> None:
    from flwr.cli.app import app

    command: Any = app
    command(["supernode", *words, NAME], standalone_mode=False)


ACTIONS: dict[str, Callable[[list[str]], None]] = {"register": _register, "unregister": _unregister, "list": _list}


def main(words: list[str]) -> None:
    try:
        ACTIONS[words[0]](words[1:])
    except click.ClickException as error:
        sys.exit(error.format_message())


if __name__ == "__main__":
    main(sys.argv[1:])
