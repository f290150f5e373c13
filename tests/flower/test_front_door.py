"""What the SuperLink and a node's helper port check before they take a body: as functions, and on real sockets."""

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

from fedseq.flower import front_door, superlink
from fedseq.flower.federation_folder import Federation

from .expected import BRIEF
from .federations import Running, running

HERE, ELSEWHERE = ("127.0.0.1", 1), ("10.0.0.7", 1)
HOST = (b"host", b"127.0.0.1:8710")


@pytest.mark.parametrize(
    ("client", "path", "allowed"),
    [
        (HERE, "/v1/control/start-run", True),
        (("::1", 1), "/v1/runtime/acquire-task", True),
        (("::ffff:127.0.0.1", 1), "/v1/control/start-run", True),
        (ELSEWHERE, "/v1/fleet/pull-messages", True),
        (ELSEWHERE, "/v1/control/start-run", False),
        (ELSEWHERE, "/v1/control/register-node", False),
        (ELSEWHERE, "/v1/runtime/acquire-task", False),
        (ELSEWHERE, "/docs", False),
        (ELSEWHERE, "/v1/fleet", False),
        (("::ffff:10.0.0.7", 1), "/v1/control/start-run", False),
        (None, "/v1/control/start-run", False),
    ],
)
def test_other_machines_reach_only_what_nodes_need(client: object, path: str, allowed: bool) -> None:
    scope = {"client": client, "path": path, "headers": [HOST]}
    assert front_door.status_of_refusal(scope, keys=True) == (0 if allowed else 403)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 0),
        ([(b"content-length", b"5243000")], 0),
        ([(b"content-length", b"8388609")], 413),
        ([(b"content-length", b"-1")], 413),
        ([(b"transfer-encoding", b"chunked")], 413),
    ],
)
def test_requests_of_nodes_have_a_bounded_length(headers: list[tuple[bytes, bytes]], status: int) -> None:
    first = {"client": ELSEWHERE, "path": front_door.ACTIVATE, "headers": [HOST, (b"content-length", b"16385")]}
    assert front_door.status_of_refusal(first, keys=True) == 413  # it needs no registered key
    scope = {"client": ELSEWHERE, "path": "/v1/fleet/push-object", "headers": [HOST, *headers]}
    assert front_door.status_of_refusal(scope, keys=True) == status


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"127.0.0.1:8710", True),
        (b"localhost:8710", True),
        (b"localhost", True),
        (b"[::1]:8710", True),
        (b"evil.example", False),
        (b"evil.example:8710", False),
        (b"127.0.0.1.evil.example", False),
        (b"", False),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: bytes, allowed: bool) -> None:
    """DNS rebinding: a page in a browser on this machine asks under its own name."""
    for path, keys in (("/v1/control/list-runs", True), ("/v1/fleet/pull-messages", False), ("/v1/runtime/x", False)):
        scope = {"client": HERE, "path": path, "headers": [(b"host", host)]}
        assert front_door.status_of_refusal(scope, keys) == (0 if allowed else 403)
        page = {**scope, "headers": [HOST, (b"origin", b"http://127.0.0.1:8710")]}
        assert front_door.status_of_refusal(page, keys) == 403


def ask(federation: Federation, path: str, headers: Mapping[str, str], port: int = 0) -> int:
    """The status that a request from this machine gets."""
    tls = federation.tls and not port
    trust = ssl.create_default_context(cafile=federation.certificates / "ca.crt") if tls else None
    address = f"{'https' if tls else 'http'}://127.0.0.1:{port or federation.port}{path}"
    handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else [])]
    try:
        request = urllib.request.Request(address, b"", dict(headers))
        return int(urllib.request.build_opener(*handlers).open(request, timeout=60).status)
    except urllib.error.HTTPError as error:
        return error.code


PRIVATE = ("/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task")


@pytest.mark.slow
@pytest.mark.timeout(900)  # real processes, and perhaps a busy machine
def test_every_door_asks_where_a_request_comes_from(fed: Running) -> None:
    """The SuperLink's and a node's: another machine (a proxy says for whom it asks), another name, a browser's page."""
    federation = fed.federation
    for path in (*PRIVATE, "/docs"):
        assert ask(federation, path, {}) not in (401, 403)
        assert ask(federation, path, {"X-Forwarded-For": "10.0.0.7"}) == 403
        assert ask(federation, path, {"Host": "evil.example"}) == 403
        assert ask(federation, path, {"Origin": "http://evil.example"}) == 403
    pid = fed.child(0).process.pid
    [port] = {found.laddr.port for found in psutil.Process(pid).net_connections() if found.status == "LISTEN"}
    assert ask(federation, "/v1/runtime/acquire-task", {}, port) != 403
    assert ask(federation, "/v1/runtime/acquire-task", {"Host": "evil.example"}, port) == 403
    assert ask(federation, "/v1/runtime/acquire-task", {"Origin": "http://evil.example"}, port) == 403


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_keys_only_this_machine_gets_in_by_its_own_name(tmp_path: Path) -> None:
    with running(tmp_path / "fed", 1, insecure=True, echo=True) as fed:
        for path in (*PRIVATE, "/v1/fleet/pull-messages"):
            assert ask(fed.federation, path, {}) != 403
            assert ask(fed.federation, path, {"Host": "evil.example"}) == 403
        assert "answer of partition 0" in fed.run()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_who_has_no_key_is_refused_before_the_body_comes(fed: Running) -> None:
    """A hundred requests of eight megabytes each of which half is sent: nothing of them is kept, and nobody waits."""
    superlink = psutil.Process(fed.deployment.children["superlink"].process.pid)
    before, half = superlink.memory_info().rss, b"x" * (4 << 20)
    trust = ssl.create_default_context(cafile=fed.federation.certificates / "ca.crt")
    head = (
        b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: %d\r\n\r\n" % (8 << 20)
    )
    answers = []
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", fed.federation.port), timeout=60) as plain:
            stranger = trust.wrap_socket(plain, server_hostname="127.0.0.1")
            began = time.monotonic()
            try:
                stranger.sendall(head)
                answers.append(stranger.recv(100).split(b"\r\n")[0])
                stranger.sendall(half)
            except OSError:  # it has closed
                pass
            assert time.monotonic() - began < 30
    assert answers == [b"HTTP/1.1 401 Unauthorized"] * 100
    assert superlink.memory_info().rss - before < 100 << 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nodes_are_told_no_path_of_the_server(fed: Running, tmp_path: Path) -> None:
    """What the app gets on a node: the run-config, of this run and as the app was written."""
    told = tmp_path / "told"
    app = fed.folder / "app" / "client_app.py"
    app.write_text(
        "import json\nfrom pathlib import Path\nfrom flwr.clientapp import ClientApp\n"
        "from fedseq.flower.client_app import make_client_app\n\n"
        "inner = make_client_app()\napp = ClientApp()\n\n\n@app.query('hello')\ndef hello(message, context):\n"
        f"    place = Path({str(told)!r})\n    place.mkdir(exist_ok=True)\n"
        "    written = (Path(__file__).parent / 'pyproject.toml').read_text()\n"
        "    text = json.dumps([dict(context.run_config), written])\n"
        "    (place / str(context.node_config['partition-id'])).write_text(text)\n"
        "    return inner(message, context)\n\n\napp.train()(lambda message, context: inner(message, context))\n"
    )
    fed.run(*BRIEF, "rounds=1", "out=told")
    assert (fed.folder / "told" / "weights.safetensors").exists()
    for client in range(4):
        text = (told / str(client)).read_text()
        assert json.loads(text)[0]["out"] == "told"
        assert str(fed.folder) not in text


def test_an_answer_in_another_nodes_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower compares a request's node with the key that signed it; the answer inside may name any node."""
    monkeypatch.setattr(fleet_handlers, "push_messages", lambda request, state: SimpleNamespace(session_id="s"))
    for name in ("push_object",):
        monkeypatch.setattr(fleet_handlers, name, getattr(fleet_handlers, name))
        monkeypatch.setattr(runtime_handlers, name, getattr(runtime_handlers, name))
    superlink.AnswerLimit()
    state: Any = None

    def push(signed_by: int, says: int) -> object:
        answer = ProtoMessage(metadata=ProtoMetadata(src_node_id=says))
        request = PushMessagesRequest(node=Node(node_id=signed_by), messages_list=[answer])
        request.message_object_trees.add(object_id="answer")
        return fleet_handlers.push_messages(request=request, state=state)

    push(signed_by=7, says=7)
    with pytest.raises(FlowerError, match="another node"):
        push(signed_by=7, says=8)
