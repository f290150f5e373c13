"""Run folders as they are found: a damaged one becomes a line that says what is wrong with it, never a failure.

Reports are made of many folders, some unfinished, some being written right now, some by another version. What can be
read is read: a torn last line of a run in progress is left out, an unreadable side file leaves its part empty.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, read_json, read_plain
from fedseq.options.config import Config
from fedseq.runs.enough import far_enough
from fedseq.runs.folder import CLIENTS, CONFIG, ENVIRONMENT, METRICS, SUPERCLIENTS, TIMING, RunFolder
from fedseq.runs.lines import is_number, parse_line
from fedseq.runs.showing import as_frame, as_html

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder, read. In a notebook it shows itself as a line and a curve."""

    folder: Path
    config: Config
    metrics: list[dict[str, Any]]
    has_weights: bool

    @property
    def complete(self) -> bool:
        """All rounds that the config asks for are there."""
        return far_enough(self.config, self.metrics)

    @property
    def finished(self) -> bool:
        return self.has_weights and self.complete

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        return [(line["round"], line["accuracy"]) for line in self.metrics if line.get("accuracy") is not None]

    @property
    def rounds(self) -> int:
        return self.metrics[-1]["round"] if self.metrics else 0

    def final_accuracy(self, last: int = 100) -> float | None:
        """Mean of the evaluations in the last 100 rounds, or in the last tenth of a run of less than 1000."""
        return self.final("accuracy", last)

    def final(self, name: str, last: int = 100) -> float | None:
        """Mean of what metrics call `name` over the same rounds; None where they do not have it."""
        told: list[tuple[int, float]] = [
            (line["round"], line[name]) for line in self.metrics if is_number(line.get(name))
        ]
        if not told:
            return None
        end, _ = told[-1]  # a run that goes on has rounds after its last evaluation
        window = min(last, max(1, end // 10))
        values = [value for round_, value in told if round_ > end - window]
        return sum(values) / len(values)

    def best_accuracy(self) -> float | None:
        return max((accuracy for _, accuracy in self.evaluations), default=None)

    def crossing(self, target: float) -> int | None:
        """First round at which the accuracy is at least `target`."""
        return next((round_ for round_, accuracy in self.evaluations if accuracy >= target), None)

    def weights(self, best: bool = False) -> dict[str, Any]:
        """The final model, or the best one, as the tensors that `load_state_dict` takes."""
        from fedseq.training.weights import load

        return load(RunFolder(self.folder).checked_weights(best))

    def frame(self) -> "DataFrame":
        """The metrics as a pandas table with a row for each round (`pip install '.[notebook]'`)."""
        return as_frame(self.metrics)

    def __repr__(self) -> str:
        return f"<Run {self.folder}: {self._in_short()}>"

    def _in_short(self) -> str:
        final = self.final_accuracy()
        reached = "" if final is None else f", final accuracy {final:.4f}"
        return f"{self.config.algorithm} on {self.config.dataset}, round {self.rounds} of {self.config.rounds}{reached}"

    def _repr_html_(self) -> str:
        return as_html(self._in_short(), str(self.folder), self.evaluations, self.rounds)


@dataclass(frozen=True)
class Broken:
    """A folder that cannot be shown, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True)
class Details:
    """What a run folder holds beside its config and metrics; empty where a file is missing."""

    examples: list[int]  # per client
    label_counts: list[list[int]]  # [clients][classes]
    superclients: list[list[int]]
    grouped_by: str  # the method that formed them, or "given"
    algorithm: dict[str, Any]  # the record it was, as plain data
    timing: list[dict[str, float]]
    environment: dict[str, Any]


def find_runs(parent: Path) -> list[Path]:
    """Run folders at or below `parent`, oldest first."""
    found = {path.parent for path in parent.glob(f"**/{CONFIG}")}
    return sorted(found, key=lambda folder: ((folder / CONFIG).lstat().st_mtime_ns, str(folder)))


def read_all(paths: Iterable[Path]) -> list[Run | Broken]:
    """Each path is a run folder or a folder that holds some. What holds none is broken too, in its place."""
    return [read(folder) for folder in dict.fromkeys(folder for path in paths for folder in _folders(path))]


def _folders(path: Path) -> list[Path]:
    return [path] if RunFolder(path).holds_run or not path.is_dir() else (find_runs(path) or [path])


def readable(found: Iterable[Run | Broken]) -> list[Run]:
    return [run for run in found if isinstance(run, Run)]


def broken(found: Iterable[Run | Broken]) -> list[Broken]:
    return [run for run in found if isinstance(run, Broken)]


def read(folder: Path) -> Run | Broken:
    if not RunFolder(folder).holds_run:
        return Broken(folder, "there is no run in it." if folder.is_dir() else "there is no such folder.")
    try:
        return read_run(folder)
    except FedSeqError as error:
        made_by = _json(folder / ENVIRONMENT).get("fedseq", __version__)
        other = "" if made_by == __version__ else f" It was made by fedseq {made_by}; this is {__version__}."
        return Broken(folder, f"{error}{other}")


def read_run(folder: str | Path, damaged_lines: bool = False) -> Run:
    """A run folder, with its metrics. One that cannot be read is an error.

    With `damaged_lines`, what follows a damaged line of the metrics is left out.
    """
    folder = Path(folder)
    files = RunFolder(folder)
    if not folder.is_dir():
        raise FedSeqError(f"there is no run folder {folder}. List the ones you have with: fedseq ls")
    if not files.holds_run:
        raise FedSeqError(f"{folder} is not a run folder: it has no {CONFIG}.")
    run = Run(folder, files.read_config(), _metrics(folder / METRICS, damaged_lines), files.wrote_model)
    if not damaged_lines and files.changed(METRICS):
        raise FedSeqError(f"{METRICS} is not what the run wrote, or its checksum is damaged: fedseq resume {folder}")
    return run


def _metrics(path: Path, damaged_lines: bool) -> list[dict[str, Any]]:
    try:
        text = read_plain(path).decode("utf-8", "replace" if damaged_lines else "strict")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FedSeqError(f"cannot read {path.name}: {error}.") from None
    records: list[dict[str, Any]] = []
    complete, _, _ = text.rpartition("\n")  # the rest is being written
    for number, line in enumerate(complete.splitlines(), 1):
        record = parse_line(line)
        if record is None or (records and record["round"] <= records[-1]["round"]):
            if damaged_lines:
                break
            raise FedSeqError(f"line {number} of {path.name} is damaged.")
        records.append(record)
    return records


def last_record(folder: Path) -> dict[str, Any] | None:
    """The newest complete line of a run's metrics, without reading many more of them."""
    try:
        with open_plain(folder / METRICS) as file:
            end, block = file.seek(0, 2), 1 << 16
            while True:
                start = max(0, end - block)
                file.seek(start)
                lines = file.read(end - start).decode("utf-8", "replace").splitlines()  # the first may be a part
                found = next((record for line in reversed(lines) if (record := parse_line(line))), None)
                if found or start == 0:
                    return found
                block *= 4
    except OSError:
        return None


def read_identity(folder: Path) -> dict[str, Any]:
    """What tells the run's data, algorithm and model from others where its options do not, as objects were given."""
    clients = _json(folder / CLIENTS)
    return {name: clients[name] for name in ("dataset", "algorithm", "model") if name in clients}


def read_details(folder: Path) -> Details:
    clients = _json(folder / CLIENTS)
    superclients = _json(folder / SUPERCLIENTS)
    algorithm = clients.get("algorithm")
    return Details(
        examples=_numbers(clients.get("examples")),
        label_counts=_rows(clients.get("label_counts")),
        superclients=_rows(superclients.get("superclients")),
        grouped_by=str(superclients.get("method", "")),
        algorithm=algorithm if isinstance(algorithm, dict) else {},
        timing=_timing(folder / TIMING),
        environment=_json(folder / ENVIRONMENT),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        return {} if RunFolder(path.parent).changed(path.name) else read_json(path) or {}
    except FedSeqError:
        return {}


def _timing(path: Path) -> list[dict[str, float]]:
    try:
        lines = read_plain(path).decode("utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = (parse_line(line) for line in lines)
    return [{name: value for name, value in line.items() if is_number(value)} for line in found if line]


def _numbers(value: Any) -> list[int]:
    return value if isinstance(value, list) and all(type(number) is int for number in value) else []


def _rows(value: Any) -> list[list[int]]:
    rows = [_numbers(row) for row in value] if isinstance(value, list) else []
    return rows if all(rows) else []
