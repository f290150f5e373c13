"""A piece of work with a folder of its own: a run, or a study of grouping criteria. Nothing is done twice."""

import json
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import read_plain
from fedseq.options.config import Config, differences_in_words
from fedseq.options.resolve import recorded
from fedseq.runs.folder import RunFolder
from fedseq.runs.reading import Broken, read

FAILURE = "failure.txt"  # in a folder whose work could not be finished: why


@dataclass(frozen=True)
class Assignment:
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

    @property
    def studied(self) -> bool:
        """The study is there, and each of its arrays has the checksum that the file gives it."""
        try:
            with zipfile.ZipFile(self.study) as archive:
                return archive.testzip() is None
        except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
            return False

    def to_json(self) -> str:
        return json.dumps({"folder": str(self.folder), "config": self.config.options(), "epochs": self.epochs})


def from_json(text: str) -> Assignment:
    value = json.loads(text)
    return Assignment(Path(value["folder"]), recorded(value["config"]), tuple(value["epochs"]))


def is_done(assignment: Assignment) -> bool:
    """Finished, with a model that is as it was written; or diverged, which it would do again."""
    if assignment.epochs:
        return assignment.studied
    run = read(assignment.folder)
    if isinstance(run, Broken):
        return False
    finished = replace(run, config=assignment.config).finished and not RunFolder(run.folder).damaged()
    return finished or diverged(assignment.folder)


def rounds_left(assignment: Assignment) -> int:
    run = read(assignment.folder)
    return max(0, (assignment.config.rounds or 0) - (0 if isinstance(run, Broken) else run.rounds))


def failure(folder: Path) -> str:
    try:
        return read_plain(folder / FAILURE).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def diverged(folder: Path) -> bool:
    return "diverged" in failure(folder)


def refuse_other_runs(assignment: Assignment) -> None:
    """A folder that holds a run with other options is not overwritten, and not taken for this one."""
    if assignment.epochs or not RunFolder(assignment.folder).holds_run:
        return
    run = read(assignment.folder)
    if isinstance(run, Broken):
        raise FedSeqError(f"{run.folder} cannot be continued: {run.reason} Choose another folder with --out.")
    if changed := differences_in_words(run.config, assignment.config):
        raise FedSeqError(
            f"{assignment.folder} holds a run with other options: {changed}. Choose another folder with --out."
        )


def on_serial_engine(config: Config) -> Config:
    """Many runs at a time use the cores better than one run on all of them."""
    return replace(config, engine="serial", workers=None, ray_address=None)
