"""The report page on the loopback address, made anew from the run folders at each request."""

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.report.page import render, to_json

HOST = "127.0.0.1"
PATIENCE = 10.0  # seconds that a client has to ask, and again to take the answer
MOST_CONNECTIONS = 64  # at a time; one more and the oldest is closed


def throttled(summarise: Callable[[], dict[str, Any]], share: float = 0.1) -> Callable[[], dict[str, Any]]:
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


class _Server(ThreadingHTTPServer):
    """Nobody can keep it busy by connecting and saying nothing, or by taking an answer byte by byte."""

    patience = PATIENCE

    def __init__(self, *arguments: Any) -> None:
        self.until: dict[Any, float] = {}  # when each open connection is closed, oldest first
        self.lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.until[request] = time.monotonic() + self.patience
            for oldest in list(self.until)[:-MOST_CONNECTIONS]:
                self._close(oldest)
        super().process_request(request, client_address)

    def wait_until(self, request: Any, moment: float) -> None:
        with self.lock:
            if request in self.until:
                self.until[request] = moment

    def service_actions(self) -> None:
        """Called by the loop several times a second."""
        with self.lock:
            for request in [request for request, moment in self.until.items() if moment < time.monotonic()]:
                self._close(request)

    def _close(self, request: Any) -> None:
        del self.until[request]
        with suppress(OSError):  # its thread, which waits for it, ends
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.until.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a reader that went away is no error of ours
            super().handle_error(request, client_address)


def make_server(summarise: Callable[[], dict[str, Any]], port: int = 0) -> ThreadingHTTPServer:
    """`summarise` is asked for what to show; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        server: _Server

        def do_GET(self) -> None:
            self.server.wait_until(self.connection, float("inf"))  # a summary takes as long as it takes
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
            self.server.wait_until(self.connection, time.monotonic() + self.server.patience)
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
        return _Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise FedSeqError(f"cannot serve on {HOST}:{port}: {error}. Choose another with --port.") from None
