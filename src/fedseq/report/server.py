"""The report page on the loopback address, made anew from the run folders at each request."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedseq.errors import FedSeqError
from fedseq.report.page import render, to_json

HOST = "127.0.0.1"


def unhurried(summarise: Callable[[], dict[str, Any]], share: float = 0.1) -> Callable[[], dict[str, Any]]:
    """The same summary again until making a new one costs less than this share of the time since the last."""
    lock = threading.Lock()
    last: list[tuple[float, float, dict[str, Any]]] = []  # when it was made, how long that took, the summary

    def ask() -> dict[str, Any]:
        with lock:
            now = time.monotonic()
            if not last or now - last[0][0] > last[0][1] / share:
                summary = summarise()
                last[:] = [(time.monotonic(), time.monotonic() - now, summary)]
            return last[0][2]

    return ask


def make_server(summarise: Callable[[], dict[str, Any]], port: int = 0) -> ThreadingHTTPServer:
    """`summarise` is asked for what to show; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if host not in (HOST, "localhost"):  # another site's page that was pointed at this address
                self.send_error(403)
            elif self.path == "/":
                self._answer("text/html; charset=utf-8", render(summarise()))
            elif self.path == "/data.json":
                self._answer("application/json", to_json(summarise()))
            else:
                self.send_error(404)

        def _answer(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise FedSeqError(f"can't serve on {HOST}:{port}: {error}. Choose another with --port.") from None
