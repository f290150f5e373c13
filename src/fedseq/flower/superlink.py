"""`flower-superlink` with one rule more: from another machine only the nodes' part of it can be reached.

Flower serves three things on one port: what nodes ask (/v1/fleet, where a node proves its key), what the `flwr` command
asks (/v1/control) and what the server's own helpers ask (/v1/runtime). The last two ask nobody who they are: whoever
reaches them can register a key, and start a run with code of their own on the server and all nodes. So they are left to
this machine. Takes the options of `flower-superlink`; to be reached from other machines it listens on 0.0.0.0.
"""

import ipaddress
import os
import sys
from typing import Any

FOR_ALL = "/v1/fleet/"


class NodesOnly:
    """Answers 403 to anybody else than this machine, except under /v1/fleet."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": b""})


def is_allowed(scope: dict[str, Any]) -> bool:
    return scope["path"].startswith(FOR_ALL) or _is_this_machine(scope.get("client"))


def _is_this_machine(client: Any) -> bool:
    try:
        address = ipaddress.ip_address(client[0])
    except (TypeError, ValueError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def main() -> None:
    from flwr.superlink import extensions
    from flwr.superlink import main as app
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    os.environ.pop("FORWARDED_ALLOW_IPS", None)  # a stranger must not say whose request it is
    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(NodesOnly), *others())
    if app._get_middleware()[0].cls is not NodesOnly:  # another version of Flower: rather nothing than an open door
        sys.exit("this version of Flower can't be restricted to its nodes. Use the one that fedseq[flower] installs.")
    flower_superlink()


if __name__ == "__main__":
    main()
