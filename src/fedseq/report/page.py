"""One self-contained HTML page: style, script and data are inline, and it asks nothing of any server."""

import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_atomically
from fedseq.runs.folder import refuse_to_write

MARK = '<meta name="generator" content="fedseq report">'  # by this we recognise a page of ours
STYLES = ("style.css",)
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
