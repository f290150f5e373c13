"""One self-contained HTML page, in a file or on the loopback address: style, script and data are inline."""

import html
import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_atomically
from fedseq.runs.folder import refuse_to_write

MARK = '<meta name="generator" content="fedseq report">'  # by this we recognise a page of ours
STYLES = ("style.css",)
HOST = "127.0.0.1"
PATIENCE = 10.0  # seconds to wait for a reader that says nothing, or does not take its answer
SCRIPTS = ("draw.js", "curves.js", "page.js", "run.js")


def render(summary: dict[str, Any]) -> str:
    names = ", ".join(dataset["name"] for dataset in summary["datasets"]) or "no runs"
    parts = {
        "MARK": MARK,
        "TITLE": html.escape(f"FedSeq report: {names}"),
        "CONNECT": "'self'" if summary["live"] else "'none'",
        "STYLE": "\n".join(_asset(name) for name in STYLES),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
        "DATA": to_json(summary).replace("<", "\\u003c"),
    }
    page = _asset("page.html")
    pieces = page.split("@@")  # text, name, text, name, ..., text
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def to_json(summary: dict[str, Any]) -> str:
    return json.dumps(_rounded(summary), separators=(",", ":"), allow_nan=False)


def write(path: Path, summary: dict[str, Any], force: bool = False) -> Path:
    """Never over a file that is not a report, unless told to."""
    if path.is_dir():
        raise FedSeqError(f"{path} is a folder. Give the name of a file, such as {path / 'report.html'}.")
    try:
        with open_plain(path) as file:
            ours = MARK.encode() in file.read(2000)
    except OSError:  # there is none, or it is refused below
        ours = False
    refuse_to_write(path, "-o", force or ours)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, render(summary).encode())
    except OSError as error:
        raise FedSeqError(f"cannot write {path}: {error.strerror}.") from None
    return path


def _asset(name: str) -> str:
    return (resources.files("fedseq.report") / "assets" / name).read_text(encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Six digits are more than a screen shows, and make the page half as long; JSON has no word for inf and nan."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


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
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a reader that is slow or went away is no error of ours
            super().handle_error(request, client_address)


def make_server(summarise: Callable[[], dict[str, Any]], port: int = 0) -> ThreadingHTTPServer:
    """The page on the loopback address, made anew by `summarise` at each request; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

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
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        return _Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise FedSeqError(f"cannot serve on {HOST}:{port}: {error}. Choose another with --port.") from None
