"""A piece of work with a folder of its own: a run, or a study of grouping criteria. Nothing is done twice."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedseq.config import FIELDS, Config, flag
from fedseq.errors import FedSeqError
from fedseq.report.reading import Broken, read
from fedseq.report.series import NEUTRAL

FAILURE = "failure.txt"  # in a folder whose work could not be finished: why
FREE = {*NEUTRAL, "rounds", "until_accuracy"} - {"seed"}  # may differ from what the folder was started with


@dataclass(frozen=True)
class Task:
    folder: Path
    config: Config  # resolved
    epochs: tuple[int, ...] = ()  # of pre-training, where it is a study of grouping criteria

    @property
    def label(self) -> str:
        return f"{self.config.dataset} {self.folder.name}"

    @property
    def study(self) -> Path:
        """What a study leaves behind."""
        return self.folder / f"study-{'-'.join(map(str, self.epochs))}.npz"

    def to_json(self) -> str:
        return json.dumps({"folder": str(self.folder), "config": asdict(self.config), "epochs": self.epochs})


def from_json(text: str) -> Task:
    value = json.loads(text)
    return Task(Path(value["folder"]), Config(**value["config"]), tuple(value["epochs"]))


def is_done(task: Task) -> bool:
    """Finished; or diverged, which it would do again."""
    if task.epochs:
        return task.study.exists()
    run = read(task.folder)
    if isinstance(run, Broken):
        return False
    return replace(run, config=task.config).finished or "diverged" in failure(task.folder)


def rounds_left(task: Task) -> int:
    run = read(task.folder)
    return max(0, (task.config.rounds or 0) - (0 if isinstance(run, Broken) else run.rounds))


def failure(folder: Path) -> str:
    try:
        return (folder / FAILURE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def refuse_other_runs(task: Task) -> None:
    """A folder that holds a run with other options is not overwritten, and not taken for this one."""
    if task.epochs or not (task.folder / "config.yaml").exists():
        return
    run = read(task.folder)
    if isinstance(run, Broken):
        raise FedSeqError(f"{run.folder} can't be continued: {run.reason} Choose another folder with --out.")
    changed = [name for name in FIELDS if name not in FREE and getattr(run.config, name) != getattr(task.config, name)]
    if changed:
        told = ", ".join(f"{flag(n)} {getattr(run.config, n)} -> {getattr(task.config, n)}" for n in changed)
        raise FedSeqError(f"{task.folder} holds a run with other options: {told}. Choose another folder with --out.")


def last_record(folder: Path) -> dict[str, Any] | None:
    """The newest complete line of a run's metrics, without reading all of them."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 65536))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            return record
    return None


def on_serial_engine(config: Config) -> Config:
    """Many runs at a time use the cores better than one run on all of them."""
    return replace(config, engine="serial")
