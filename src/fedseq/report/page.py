"""The report page: what it shows, as plain data, and the page itself, a self-contained file or on the loopback address.

Everything is computed here, the page only draws it. Style, script and data are inline.
"""

import html
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_atomically
from fedseq.options.config_files import to_yaml, without_places
from fedseq.report.convergence import (
    SHARES,
    WINDOW,
    Bound,
    ComparisonRow,
    all_costs,
    by_dataset,
    compare_costs,
    crossing_text,
    find_bound,
)
from fedseq.report.costs import AS_RECORDED, Costs, Spent, describe_clients
from fedseq.report.run_tables import cells_of, is_private
from fedseq.report.series import Series, command
from fedseq.runs.folder import refuse_to_write
from fedseq.runs.reading import Broken, Details, Run, broken, readable
from fedseq.simulation.clock import WhatIf

SNAPSHOTS = 80  # rounds at which the accuracy of each class is shown
LARGEST_MAP = 250  # rows of a heat map
POINTS = 600  # of a curve; more cannot be seen
MEASURES = ("accuracy", "loss", "train_loss")

MARK = '<meta name="generator" content="fedseq report">'  # by this we recognise a page of ours
STYLES = ("style.css",)
HOST = "127.0.0.1"
PATIENCE = 10.0  # seconds to wait for a reader that says nothing, or does not take its answer
SCRIPTS = ("draw.js", "curves.js", "page.js", "run.js")


def summarise(
    found: Sequence[Run | Broken], what_if: WhatIf = AS_RECORDED, bound: float | None = None, live: bool = False
) -> dict[str, Any]:
    found = _without_places(found)
    datasets = by_dataset(readable(found))
    groups = [_dataset(name, runs, what_if, find_bound(runs, bound)) for name, runs in datasets.items()]
    return {
        "version": __version__,
        "live": live,
        "devices": describe_clients(readable(found), what_if),
        "datasets": groups,
        "broken": [{"folder": str(one.folder), "reason": one.reason} for one in broken(found)],
    }


def _without_places(found: Sequence[Run | Broken]) -> list[Run | Broken]:
    """A page may be sent to others: folders and files go by their names, from where all of these folders lie."""
    absolute = [one.folder.parent for one in found if one.folder.is_absolute()]
    home = Path(os.path.commonpath(absolute)) if absolute else Path()
    shown: list[Run | Broken] = []
    for one in found:
        folder = one.folder.relative_to(home) if one.folder.is_absolute() else one.folder
        if isinstance(one, Broken):
            shown.append(Broken(folder, one.reason.replace(str(one.folder), str(folder))))
            continue
        shown.append(replace(one, folder=folder, config=without_places(one.config)))
        vars(shown[-1])["details"] = one.details  # as they were read
    return shown


def _dataset(name: str, runs: Sequence[Run], what_if: WhatIf, bound: Bound | None) -> dict[str, Any]:
    costs = all_costs(runs, what_if)
    rows = compare_costs(runs, bound, costs)
    private = is_private(rows)
    return {
        "name": name,
        "private": private,
        "bound": asdict(bound) if bound else None,
        "targets": [{"share": share, "accuracy": share * bound.accuracy} for share in SHARES] if bound else [],
        "headlines": headlines(rows),
        "series": [_series(row, costs, private) for row in rows],
        "runs": [_run(run, row.label) for row in rows for run in row.series.runs],
    }


def headlines(rows: Sequence[ComparisonRow]) -> dict[str, str]:
    """One for all rows, and one for those of each alpha."""
    alphas = dict.fromkeys(row.series.config.spread for row in rows if not row.series.central)
    by_alpha = {alpha: [row for row in rows if row.series.config.spread == alpha] for alpha in alphas}
    return {"all": headline(rows), **{alpha: headline(members) for alpha, members in by_alpha.items()}}


def headline(rows: Sequence[ComparisonRow]) -> str:
    """The sentence a reader takes home: who is the soonest at 80 %, and how much sooner than FedAvg."""
    at = SHARES.index(0.8)
    ahead = [(row.speedups[at], row) for row in rows if row.crossings and row.speedups[at]]
    best = max(ahead, key=lambda pair: pair[0].factor if pair[0] else 0.0, default=None)
    if best and best[0] and best[0].factor > 1 and best[1].series.config.algorithm != "fedavg":
        rounds = crossing_text(best[1].crossings[at].first, best[1].series.runs)
        sooner = f"{'more than ' if best[0].at_least else ''}{best[0].factor:.1f} times sooner"
        time = best[1].time_speedups[at]
        open_ = "FedAvg has not run long enough to tell about simulated time."
        clock = f"In simulated time the factor is {time}." if time else open_
        return f"{best[1].label} reaches 80 % of the bound in {rounds} rounds, {sooner} than FedAvg. {clock}"
    finals = [row for row in rows if row.final and not row.series.central]
    if not finals:
        return "Nothing has been evaluated yet."
    top = max(finals, key=lambda row: row.final.mean if row.final else 0.0)
    return f"Best final accuracy: {top.label}, {top.final.mean if top.final else 0:.2%}."


def _series(row: ComparisonRow, costs: Mapping[Path, Costs], private: bool) -> dict[str, Any]:
    series, spent = row.series, ["epsilon"] if private else []
    targets = [f"{name} {share}" for share in SHARES for name in ("first", "smooth", "speedup") if row.crossings]
    costly = [f"{name} 0.8" for name in ("first", "updates", "bytes", "seconds", "time speedup", *spent)]
    return {
        "label": series.label,
        "algorithm": series.config.algorithm,
        "central": series.central,
        "alpha": None if series.central else series.config.spread,
        "finished": series.finished,
        "seeds": list(series.seeds),
        "curve": None if series.central else make_curve(series, [costs[run.folder] for run in series.runs]),
        "cells": _picked(row, ["title", "final", "rounds", "seeds", *spent, *targets]),
        "costs": [] if series.central or not row.crossings else _picked(row, ["label", *costly]),
    }


def _picked(row: ComparisonRow, names: Sequence[str]) -> list[dict[str, Any]]:
    """Cells of the convergence table or of the costs: what is shown, and what it is sorted by."""
    cells = cells_of(row)
    return [{"text": cells[name].text, "sort": cells[name].value} for name in names]


def _run(run: Run, label: str) -> dict[str, Any]:
    details = run.details
    return {
        "folder": str(run.folder),
        "label": f"{label}, seed {run.config.seed}",
        "series": label,
        "state": "finished" if run.finished else f"unfinished: {run.rounds} of {run.config.rounds} rounds",
        "superclients": composition(details),
        "groups": len(details.superclients or ()),
        "per_class": _per_class(run),
        "over_clients": over_clients(run),
        "skipped": skipped(run),
        "seconds": time_split(details),
        "command": command(run.config) or "made in Python with data of its own: no command repeats it",
        "config": to_yaml(run.config),
        "environment": details.environment,
    }


def composition(details: Details) -> list[list[int]] | None:
    """Examples of each class in each superclient."""
    counts = details.label_counts
    if not counts or not details.superclients:
        return None
    groups = [[counts[client] for client in group] for group in details.superclients[:LARGEST_MAP]]
    return [[sum(column) for column in zip(*group, strict=True)] for group in groups]


def _per_class(run: Run) -> dict[str, Any] | None:
    lines = [line for line in run.metrics if line.get("per_class_accuracy")]
    if not lines:
        return None
    lines = _snapshots(lines)
    return {"rounds": [line["round"] for line in lines], "values": [line["per_class_accuracy"] for line in lines]}


def _snapshots(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of the lines, evenly, and always the first and the last."""
    if len(lines) <= SNAPSHOTS:
        return lines
    return [lines[i * (len(lines) - 1) // (SNAPSHOTS - 1)] for i in range(SNAPSHOTS)]


def over_clients(run: Run) -> dict[str, Any] | None:
    """The distribution of the clients' own accuracies over the rounds: shares of the clients in each tenth."""
    lines = [line for line in run.metrics if line.get("client_accuracies")]
    if not lines:
        return None
    chosen = _snapshots(lines)
    places = [[min(9, int(10 * accuracy)) for accuracy in line["client_accuracies"]] for line in chosen]
    measures = ("client_mean", "client_median", "client_worst_decile", "client_std")
    return {
        "rounds": [line["round"] for line in chosen],
        "tenths": [[found.count(tenth) / len(found) for tenth in range(10)] for found in places],
        "clients": len(lines[-1]["client_accuracies"]),
        "last": {name.removeprefix("client_"): lines[-1].get(name) for name in measures},
    }


def skipped(run: Run) -> list[dict[str, Any]]:
    """Hops that were left out, among them those whose update the gate refused, by reason."""
    found: dict[str, dict[str, Any]] = {}
    for line in run.metrics:
        for hop in line.get("skipped") or ():
            reason = str(hop.get("reason", "skipped"))
            entry = found.setdefault(reason, {"reason": reason, "count": 0, "rounds": [], "clients": []})
            entry["count"] += 1
            for name, value in (("rounds", line["round"]), ("clients", hop.get("client"))):
                if value is not None and value not in entry[name]:
                    entry[name].append(value)
    return sorted(found.values(), key=lambda entry: -entry["count"])


def time_split(details: Details) -> dict[str, float]:
    """Seconds by what they went to."""
    totals: dict[str, float] = {}
    for line in details.timing:
        for name, seconds in line.items():
            if name != "round":
                totals[name] = totals.get(name, 0.0) + seconds
    return totals


def make_curve(series: Series, costs: Sequence[Costs]) -> dict[str, Any]:
    """Means over the seeds at the rounds that all of them evaluated, and their range."""
    lines = [{line["round"]: line for line in run.metrics if line.get("accuracy") is not None} for run in series.runs]
    rounds = sorted(set.intersection(*(set(by_round) for by_round in lines)))
    measured = {name: [_mean([by_round[r].get(name) for by_round in lines]) for r in rounds] for name in MEASURES}
    kept = thin(measured["accuracy"])
    evaluated = [[by_round[rounds[i]]["accuracy"] for by_round in lines] for i in kept]
    efforts = [[cost.until(rounds[i]) for cost in costs] for i in kept]
    smooth = {name: running_mean(values) for name, values in measured.items()}
    return {
        "rounds": [rounds[i] for i in kept],
        **{name: [values[i] for i in kept] for name, values in measured.items()},
        "smooth": {name: [values[i] for i in kept] for name, values in smooth.items()},
        "low": list(map(min, evaluated)) if len(lines) > 1 else [],
        "high": list(map(max, evaluated)) if len(lines) > 1 else [],
        **{name: [_mean([getattr(spent, name) for spent in at]) for at in efforts] for name in Spent._fields},
    }


def running_mean(values: Sequence[float | None]) -> list[float | None]:
    """Over five evaluations (fewer at the start); none where one of them is missing."""
    return [_mean(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def thin(values: Sequence[float | None], limit: int = POINTS) -> list[int]:
    """Positions worth drawing: of each stretch its lowest and highest value, and both ends."""
    if len(values) <= limit:
        return list(range(len(values)))
    stretches = limit // 2
    kept = {0, len(values) - 1}
    for i in range(stretches):
        stretch = range(i * len(values) // stretches, (i + 1) * len(values) // stretches)
        kept |= {min(stretch, key=lambda at: values[at] or 0.0), max(stretch, key=lambda at: values[at] or 0.0)}
    return sorted(kept)


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
