"""Run folders as they are found: a damaged one becomes a line that says what is wrong with it, never a failure.

Reports are made of many folders, some unfinished, some being written right now, some by another version. A file that is
not what the run wrote, by its checksum, makes the folder unreadable: no number is shown that may not be the run's own.
Of metrics that still grow, the newest checkpoint has the checksum; a torn last line is being written and is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import decode, fits, hashed, open_plain, refuse_longer
from fedseq.options.config import Config
from fedseq.options.ending import far_enough
from fedseq.runs.folder import (
    CLIENTS,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    SUMS,
    SUPERCLIENTS,
    SUPERCLIENTS_FORM,
    TIMING,
    RunFolder,
)
from fedseq.runs.manifests import newest_evidence

if TYPE_CHECKING:
    from pandas import DataFrame

LONGEST_FILE, LONGEST_LINE = 2**32, 2**26  # bytes of metrics that are read: of all rounds, and of one
RECORD = {
    "round": int, "accuracy?": (float, None), "loss?": (float, None), "train_loss?": (float, None),
    "epsilon?": (float, None), "simulated_seconds?": float, "client_updates?": int, "bytes_down?": int,
    "bytes_up?": int, "per_class_accuracy?": [(float, None)], "client_accuracies?": [float], "skipped?": [dict],
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder, read. In a notebook it shows itself as a line and a curve."""

    folder: Path
    config: Config
    metrics: list[dict[str, Any]]
    has_weights: bool

    @cached_property
    def details(self) -> "Details":
        """What the folder holds beside its config and metrics."""
        return _read_details(RunFolder(self.folder))

    @property
    def complete(self) -> bool:
        """All rounds that the config asks for are there."""
        return far_enough(self.config, self.metrics)

    @property
    def finished(self) -> bool:
        """Complete, and it has a model; of a published copy its environment says so too."""
        return self.complete and (
            self.has_weights or (self.published and bool(self.details.environment.get("finished")))
        )

    @property
    def published(self) -> bool:
        """A copy without its model, whose lines tell of the rounds between them too, and of the simulated time."""
        return bool(self.metrics) and "simulated_seconds" in self.metrics[-1]

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """Rounds and the accuracies found after them."""
        return [(line["round"], line["accuracy"]) for line in self.metrics if line.get("accuracy") is not None]

    @property
    def rounds(self) -> int:
        """How many rounds are done."""
        return self.metrics[-1]["round"] if self.metrics else 0

    def final_accuracy(self, last: int = 100) -> float | None:
        """Mean of the evaluations in the last 100 rounds, or in the last tenth of a run of less than 1000."""
        return self.final("accuracy", last)

    def final(self, name: str, last: int = 100) -> float | None:
        """Mean of what metrics call `name` over the same rounds; None where they do not have it."""
        told: list[tuple[int, float]] = [
            (line["round"], line[name]) for line in self.metrics if fits(line.get(name), float)
        ]
        if not told:
            return None
        end, _ = told[-1]  # a run that goes on has rounds after its last evaluation
        window = min(last, max(1, end // 10))
        values = [value for round_, value in told if round_ > end - window]
        return sum(values) / len(values)

    def best_accuracy(self) -> float | None:
        """The highest of all evaluations."""
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
        from fedseq.runs.notebook import as_frame

        return as_frame(self.metrics)

    def __repr__(self) -> str:
        return f"<Run {self.folder}: {self._in_short()}>"

    def _in_short(self) -> str:
        final = self.final_accuracy()
        reached = "" if final is None else f", final accuracy {final:.4f}"
        return f"{self.config.algorithm} on {self.config.dataset}, round {self.rounds} of {self.config.rounds}{reached}"

    def _repr_html_(self) -> str:
        from fedseq.runs.notebook import as_html

        return as_html(self._in_short(), str(self.folder), self.evaluations, self.rounds)


@dataclass(frozen=True)
class Broken:
    """A folder that cannot be shown, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True)
class Details:
    """What a run folder holds beside its config and metrics; empty where the run wrote none."""

    examples: list[int]  # per client
    label_counts: list[list[int]]  # [clients][classes]
    superclients: list[list[int]]
    grouped_by: str  # the method that formed them, or "given"
    algorithm: dict[str, Any]  # the record it was, as plain data
    identity: dict[str, Any]  # what tells its data, algorithm and model from others where the options do not
    timing: list[dict[str, float]]
    environment: dict[str, Any]


def find_runs(parent: Path) -> list[Path]:
    """Run folders at or below `parent`, oldest first; also what is left of one that has lost its config."""
    dates = {path.parent: path.lstat().st_mtime_ns for name in (SUMS, CONFIG) for path in parent.glob(f"**/{name}")}
    found = [folder for folder in dates if RunFolder(folder).holds_run or CONFIG in RunFolder(folder).sums()]
    return sorted(found, key=lambda folder: (dates[folder], str(folder)))


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
    """The whole folder: what is damaged is found here, before anything is shown."""
    if not folder.is_dir():
        return Broken(folder, "there is no such folder.")
    if not RunFolder(folder).holds_run and CONFIG not in RunFolder(folder).sums():
        return Broken(folder, "there is no run in it.")
    try:
        run = read_run(folder)
        _ = run.details
        return run
    except FedSeqError as error:
        return Broken(folder, f"{error}{_made_by_another(folder)}")


def _made_by_another(folder: Path) -> str:
    try:
        made_by = (RunFolder(folder).read(ENVIRONMENT) or {}).get("fedseq", __version__)
    except FedSeqError:
        return ""
    return "" if made_by == __version__ else f" It was made by fedseq {made_by}; this is {__version__}."


def read_run(folder: str | Path, to_continue: bool = False) -> Run:
    """A run folder, with its metrics. One that cannot be read is an error.

    Where a run is going to be continued, its checkpoints decide what of it is good: what follows a damaged line of the
    metrics is left out.
    """
    folder = Path(folder)
    files = RunFolder(folder)
    if not folder.is_dir():
        raise FedSeqError(f"there is no run folder {folder}. List the ones you have with: fedseq ls")
    if not files.holds_run and CONFIG not in files.sums():
        raise FedSeqError(f"{folder} is not a run folder: it has no {CONFIG}.")
    config = files.read_config(checked=not to_continue)
    return Run(folder, config, _read_lines(files, METRICS, RECORD, to_continue), files.wrote_model)


def _read_lines(files: RunFolder, name: str, form: Any, to_continue: bool = False) -> list[dict[str, Any]]:
    """The lines of a file to which each round adds one; checked as far as there is a checksum."""
    path = files.path / name
    records: list[dict[str, Any]] = []
    try:
        if not to_continue:
            _check_lines(files, name)
        with open_plain(path) as file:
            refuse_longer(path, file, LONGEST_FILE)
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                if not line.endswith(b"\n") and len(line) < LONGEST_LINE:  # it is being written
                    break
                try:
                    record = decode(line, form)
                    if records and record["round"] <= records[-1]["round"]:
                        raise ValueError("its round is not after that of the line before")
                except ValueError as error:
                    if to_continue:
                        break
                    raise FedSeqError(f"line {number} of {path} is damaged: {error}.") from None
                records.append(record)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FedSeqError(f"cannot read {path}: {error.strerror}.") from None
    return records


def _check_lines(files: RunFolder, name: str) -> None:
    for _ in range(2):  # a run that goes on may end, or save a checkpoint, between our two looks
        known, length = _checksum(files, name)
        if known is None or known == hashed(files.path / name, length, LONGEST_FILE).hexdigest():
            return
    raise files.not_as_written(name)


def _checksum(files: RunFolder, name: str) -> tuple[str | None, int | None]:
    """Of the whole file, or of so many bytes, which the newest checkpoint vouches for; None where nobody does."""
    sums = files.sums()
    if METRICS in sums:
        return sums.get(name), None
    try:
        evidence = newest_evidence(files.checkpoints)
    except FedSeqError:  # of another version
        return None, None
    lines = evidence[name.partition(".")[0]] if evidence else {}
    return lines.get("sha256"), lines.get("length")


def _read_details(files: RunFolder) -> Details:
    clients = files.read_clients() or {}
    formed = files.read(SUPERCLIENTS, SUPERCLIENTS_FORM) or {}
    examples, counts = clients.get("examples", []), clients.get("label_counts", [])
    groups = formed.get("superclients", [])
    if len(counts) not in (0, len(examples)) or len({len(row) for row in counts}) > 1:
        raise FedSeqError(f"{files.path / CLIENTS} is damaged: not every client has its counts of the same classes.")
    if examples and any(not 0 <= client < len(examples) for group in groups for client in group):
        raise FedSeqError(f"{files.superclients} is damaged: it names clients that there are not.")
    timing = _read_lines(files, TIMING, {"round": int})
    return Details(
        examples=examples,
        label_counts=counts,
        superclients=groups,
        grouped_by=formed.get("method", ""),
        algorithm=clients.get("algorithm") or {},
        identity={name: clients[name] for name in ("dataset", "algorithm", "model") if name in clients},
        timing=[{name: value for name, value in line.items() if fits(value, float)} for line in timing],
        environment=files.read(ENVIRONMENT) or {},
    )


def last_record(folder: Path) -> dict[str, Any] | None:
    """The newest complete line of a run's metrics, without reading many more of them."""
    try:
        with open_plain(folder / METRICS) as file:
            end, block = file.seek(0, 2), 1 << 16
            while True:
                start = max(0, end - block)
                file.seek(start)
                lines = file.read(end - start).decode("utf-8", "replace").splitlines()  # the first may be a part
                found = next((record for line in reversed(lines) if (record := _record(line))), None)
                if found or start == 0:
                    return found
                block *= 4
    except OSError:
        return None


def _record(line: str) -> dict[str, Any] | None:
    try:
        return cast(dict[str, Any], decode(line, RECORD))
    except ValueError:
        return None
