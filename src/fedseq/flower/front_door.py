"""What is checked of a request before any of its body is taken: where it comes from, for whom, by which key, how large.

Flower serves three things on the SuperLink's port: what nodes ask (/v1/fleet, where a node proves its key), what the
`flwr` command asks (/v1/control) and what the server's own helpers ask (/v1/runtime). The last two ask nobody who they
are: whoever reaches them can register a key, and start a run with code of their own on the server and all nodes. So
they are left to this machine, and not to a page in a browser on it, whose name was made to point here (DNS rebinding).
"""

import asyncio
import datetime
import ipaddress
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

FOR_ALL = "/v1/fleet/"
ACTIVATE = "/v1/fleet/activate-node"  # a node's first request; Flower's answer tells it that its key is not registered
LARGEST_FIRST_REQUEST = 16 << 10  # bytes
LARGEST_REQUEST = 8 << 20  # bytes: nodes send arrays in pieces of 5 MiB
BODY_SECONDS = 120.0  # a piece at half a megabit a second takes 80

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class FrontDoor:
    """Refuses with 401, 403 or 413; a body has a limited time. With `keys`, a node needs one that is registered."""

    def __init__(self, app: Any, keys: bool):
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = status_of_refusal(scope, self.keys)
        if not refusal and self.keys and scope["path"].startswith(FOR_ALL) and scope["path"] != ACTIVATE:
            refusal = 0 if await asyncio.to_thread(_is_a_nodes, scope) else 401
        if refusal and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal:
            await _answer(send, refusal)
        else:
            await self.app(scope, _in_time(receive), send)


def status_of_refusal(scope: Scope, keys: bool) -> int:
    """0 for a request that may pass, as far as its first lines tell."""
    headers = dict(scope.get("headers", ()))
    if b"origin" in headers:  # a page in a browser; nobody of ours is one
        return 403
    of_node = scope["path"].startswith(FOR_ALL)
    if not (of_node and keys) and not _names_this_machine(headers.get(b"host", b"")):
        return 403
    if not of_node:
        return 0 if _is_loopback((scope.get("client") or ("",))[0]) else 403
    length = headers.get(b"content-length", b"" if b"transfer-encoding" in headers else b"0")
    largest = LARGEST_FIRST_REQUEST if scope["path"] == ACTIVATE else LARGEST_REQUEST
    return 0 if length.isdigit() and int(length) <= largest else 413


def _is_a_nodes(scope: Scope) -> bool:
    """Whether a registered key has signed the time of the request; whose it says it is, Flower compares later."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.lower()], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.lower()], validate=True)
        time = headers[TIMESTAMP_HEADER.lower()]
        age = (now() - datetime.datetime.fromisoformat(time)).total_seconds()
        fresh = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
        if not fresh or not verify_signature(bytes_to_public_key(key), time.encode("ascii"), signature):
            return False
    except (KeyError, ValueError, TypeError):
        return False
    state = scope["app"].state.linkstate_factory.state()
    return state.get_node_id_by_public_key(key) is not None


def _in_time(receive: Receive) -> Receive:
    """A body that has not come within its time has ended: who sent half of one has gone."""
    end = asyncio.get_running_loop().time() + BODY_SECONDS
    complete = False

    async def received() -> dict[str, Any]:
        nonlocal complete
        if complete:  # from now on only a disconnection is waited for
            return await receive()
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        complete = not message.get("more_body", False)
        return message

    return received


async def _answer(send: Any, status: int) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _names_this_machine(host: bytes) -> bool:
    name = host.decode("latin-1").rpartition(":")[0] or host.decode("latin-1")
    return name == "localhost" or _is_loopback(name.strip("[]"))


def _is_loopback(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
