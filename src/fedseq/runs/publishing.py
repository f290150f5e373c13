"""A run as it is published: small enough for a repository, and enough for every table and figure of it.

Left out are the model (its checksum stays), checkpoints, and where it was computed. Of the metrics the evaluated rounds
stay. Each of their lines tells what the run cost since the line before, and the simulated time so far by the run's own
options, as the clients that it follows from are no longer listed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import digest, write_atomically, write_sums
from fedseq.options.config import OPTIONS, Config
from fedseq.options.config_files import without_places
from fedseq.options.option import Role
from fedseq.runs.folder import CLIENTS, ENVIRONMENT, METRICS, SUMS, SUPERCLIENTS, WEIGHTS, RunFolder, new_folder
from fedseq.runs.reading import Details, Run

SOFTWARE = ("seed", "fedseq", "git_revision", "python", "torch", "numpy", "cpu")
LISTS = ("drawn", "units", "clients", "per_class_accuracy")  # most of a line's length
SUMMED = ("client_updates", "bytes_down", "bytes_up")


def publish(run: Run, seconds: Sequence[float], parent: Path) -> Path:
    """Write the run into a folder of its name below `parent`. `seconds` is the simulated clock after each round."""
    details = run.details
    if len(seconds) != len(run.metrics):
        raise FedSeqError(f"{run.folder}: its files are damaged: they do not tell who was trained in each round.")
    place = new_folder(parent, _name(run))
    RunFolder(place).write_config(_wherever_computed(run.config))
    written = {
        ENVIRONMENT: {**_environment(details), "finished": run.finished},
        CLIENTS: {
            "examples": details.examples,
            "label_counts": details.label_counts,
            **details.identity,
        },
        **({SUPERCLIENTS: _superclients(details)} if details.superclients else {}),
    }
    for name, value in written.items():
        write_atomically(place / name, (json.dumps(value) + "\n").encode())
    lines = "".join(json.dumps(line) + "\n" for line in _evaluated_lines(run, seconds))
    write_atomically(place / METRICS, lines.encode())
    sums = {path.name: digest(path) for path in sorted(place.iterdir()) if path.name != SUMS}
    write_sums(place / SUMS, sums | ({WEIGHTS: digest(RunFolder(run.folder).weights)} if run.finished else {}))
    return place


def refuse_unpublishable(runs: Sequence[Run], parent: Path) -> None:
    """Before anything is written: all of them can be published, each under a name of its own."""
    named: dict[str, Path] = {}
    for run in runs:
        if not run.evaluations:
            raise FedSeqError(f"{run.folder}: nothing has been evaluated yet, so there is nothing to publish.")
        if run.published or (run.has_weights and not RunFolder(run.folder).weights.exists()):
            raise FedSeqError(f"{run.folder} is published already, or its model is gone. Publish the run itself.")
        if run.finished and (damaged := RunFolder(run.folder).damaged()):
            raise FedSeqError(
                f"{' and '.join(damaged)} in {run.folder} changed since the run ended. Put it back, or write it anew "
                f"from the last checkpoint: fedseq resume {run.folder}"
            )
        if (parent / _name(run)).exists():
            raise FedSeqError(f"{parent / _name(run)} exists, and results are never overwritten. Move it away first.")
        if _name(run) in named:
            raise FedSeqError(
                f"{named[_name(run)]} and {run.folder} would be published under one name. Publish them to two folders."
            )
        named[_name(run)] = run.folder


def _name(run: Run) -> str:
    return run.folder.resolve().name  # of "." too


def _wherever_computed(config: Config) -> Config:
    """Without the options that tell of one machine, and names of files only: another may repeat it with its own."""
    defaults = {name: found.default for name, found in OPTIONS.items() if found.role is Role.PLACE}
    return replace(without_places(config), **{name: value for name, value in defaults.items() if not callable(value)})


def _superclients(details: Details) -> dict[str, Any]:
    return {"method": details.grouped_by, "superclients": details.superclients}


def _environment(details: Details) -> dict[str, Any]:
    spent = sum(line.get(part, 0.0) for line in details.timing for part in ("train", "evaluate", "overhead"))
    software = {name: details.environment.get(name) for name in SOFTWARE}
    return {**software, "hours": round(spent / 3600, 2)}  # by the clock


def _evaluated_lines(run: Run, seconds: Sequence[float]) -> Iterator[dict[str, Any]]:
    spent = dict.fromkeys(SUMMED, 0)
    skipped: list[Any] = []
    for line, clock in zip(run.metrics, seconds, strict=True):
        spent = {name: spent[name] + line.get(name, 0) for name in SUMMED}
        skipped += line.get("skipped", ())
        if line.get("accuracy") is None:
            continue
        told = {name: value for name, value in line.items() if name not in LISTS}
        yield {**told, **spent, "skipped": skipped, "simulated_seconds": round(clock, 3)}
        spent, skipped = dict.fromkeys(SUMMED, 0), []
