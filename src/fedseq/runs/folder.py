"""A run folder: everything a run leaves behind, by name. Nobody else knows these names.

config.yaml           every option, resolved: `fedseq run config.yaml` repeats the run
environment.json      versions, git revision, seed
clients.json          examples per client and class
superclients.json     the groups, where there are any
metrics.jsonl         a line a round; no clock, host or engine, so that the same run gives the same bytes
timing.jsonl          a line a round: seconds
model.json            what it takes to use the model: its name, shape and scaling of inputs, names of classes
weights.safetensors   the final model as named tensors, with the same in its metadata
weights-best.safetensors   the model of the best evaluation; with --patience
SHA256SUMS            of all of these, as `sha256sum -c` reads them; of what still grows, checkpoints keep checksums
tracking/             what trackers keep, where some are asked for
checkpoints/          what `fedseq resume` continues from
privacy.json          visits to each client, where noise is drawn anew: what they have spent is never taken back
pretraining/          what clients are estimated by; needed until they are grouped
"""

import contextlib
import hashlib
import json
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq import __version__
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import (
    MOST_BYTES,
    Form,
    digest,
    read_json,
    read_sums,
    remove_leftovers,
    write_atomically,
    write_sums,
)
from fedseq.options.config import Config
from fedseq.options.config_files import read_yaml, to_yaml
from fedseq.options.option import brief
from fedseq.options.resolve import recorded

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, ENVIRONMENT, CLIENTS, SUPERCLIENTS = "config.yaml", "environment.json", "clients.json", "superclients.json"
METRICS, TIMING, MODEL = "metrics.jsonl", "timing.jsonl", "model.json"
WEIGHTS, BEST = "weights.safetensors", "weights-best.safetensors"
CHECKPOINTS, PRETRAINING, TRACKING, LOCK, SUMS = "checkpoints", "pretraining", "tracking", ".lock", "SHA256SUMS"
LEDGER = "privacy.json"  # stays where a run is begun anew: its clients are the same
STUDY = "group.yaml"  # of a folder that `fedseq group` made
AT_THE_END = (METRICS, TIMING, WEIGHTS, BEST)  # checksums of these are written when a run ends
SUMMED = (CONFIG, ENVIRONMENT, CLIENTS, SUPERCLIENTS, MODEL, *AT_THE_END)
MADE = (*SUMMED[1:], SUMS, CHECKPOINTS, PRETRAINING, TRACKING)  # by a run itself


def slug(text: str) -> str:
    """A name as a part of a file's."""
    return re.sub("[:/ ]", "-", text)


def run_name(config: Config, special: Mapping[str, Any]) -> str:
    """What tells a run from its neighbours: the algorithm, special options by value or name, alpha and seed."""
    words = [config.algorithm]
    for name, value in special.items():
        words.append(value if isinstance(value, str) else f"{name.replace('_', '-')}{brief(value).lower()}")
    if config.algorithm != "centralized":
        words.append(f"by-{config.clients_by}" if config.real_clients else f"alpha{config.alpha:g}")
    return slug("-".join([*words, f"seed{config.seed}"]))


def new_folder(parent: Path, name: str) -> Path:
    """The first of name, name-2, name-3, ... that does not exist yet, made."""
    for number in range(1, 1_000_000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise FedSeqError(
                f"cannot make the run folder {folder}: {error.strerror}. Choose another with --out."
            ) from None
        return folder
    raise FedSeqError(f"{parent} is full of runs named {name}. Choose another with --out.")


def refuse_existing_run(folder: Path) -> None:
    if (folder / STUDY).exists():
        raise FedSeqError(f"{folder} holds the results of fedseq group. Choose another folder with --out.")
    if any((folder / name).exists() for name in (CONFIG, METRICS, WEIGHTS, CHECKPOINTS)):
        raise FedSeqError(
            f"{folder} already holds a run, and runs are never overwritten. "
            f"Continue it with: fedseq resume {folder}   or choose another folder with --out."
        )
    # Pre-training is looked at before it is used, and adds to what is there.
    if found := [name for name in MADE if name != PRETRAINING and (folder / name).exists()]:
        raise FedSeqError(f"{folder} holds {' and '.join(found)}, which a run would write over. Choose another.")


def refuse_to_write(path: Path, flag: str, force: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Refuse to write a file where `flag` said: over a run's own file or an input never, over another only by force."""
    if path.exists() and not path.is_file():
        raise FedSeqError(f"{path} is not a plain file. Name another with {flag}.")
    real = path.resolve()
    for folder in real.parents:
        if RunFolder(folder).holds_run and real.relative_to(folder).parts[0] in (CONFIG, LOCK, LEDGER, *MADE):
            raise FedSeqError(f"{path} belongs to the run in {folder} and is never written over. Name another {flag}.")
    if any(path.exists() and (file == real or file in real.parents) for file in map(Path.resolve, inputs)):
        raise FedSeqError(f"{path} is read by this command and is never written over. Name another {flag}.")
    if path.exists() and not force:
        raise FedSeqError(f"{path} exists already. Name another file with {flag}, or overwrite it with --force.")


CLIENTS_FORM = {
    "examples?": [int], "label_counts?": [[int]], "names?": [str], "data?": (str, None), "dataset?": str,
    "algorithm?": (dict, None), "model?": (dict, None),
}  # fmt: skip
SUPERCLIENTS_FORM = {"superclients?": [[int]], "method?": str}


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def holds_run(self) -> bool:
        return (self.path / CONFIG).exists()

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def pretraining(self) -> Path:
        return self.path / PRETRAINING

    @property
    def tracking(self) -> Path:
        return self.path / TRACKING

    @property
    def superclients(self) -> Path:
        return self.path / SUPERCLIENTS

    @property
    def ledger(self) -> Path:
        return self.path / LEDGER

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    @property
    def wrote_model(self) -> bool:
        """The model itself may be elsewhere: what is published has only its checksum."""
        return self.weights.exists() or WEIGHTS in self.sums()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this process. The system lets go of it when the process dies, however it dies."""
        import filelock

        self._refuse_links_and_pipes()
        try:
            lock = filelock.FileLock(self.path / LOCK, blocking=False)
            lock.acquire()
        except filelock.Timeout:
            raise FedSeqError(
                f"another process is running in {self.path}. Wait for it, or choose another with --out."
            ) from None
        except OSError as error:
            raise FedSeqError(f"cannot write in {self.path}: {error.strerror}. Choose another with --out.") from None
        try:
            for place in (self.path, self.checkpoints, self.checkpoints / "memory"):
                remove_leftovers(place)
            yield
        finally:
            lock.release()

    def _refuse_links_and_pipes(self) -> None:
        """Whoever gave us this folder must not choose which other files we write to, or that we wait for ever."""
        names = (self.path / name for name in (CONFIG, LOCK, LEDGER, *MADE, f"{CHECKPOINTS}/memory"))
        for path in (*names, *self.pretraining.rglob("*")):
            if path.is_symlink():
                raise FedSeqError(
                    f"{path} is a symbolic link, and runs do not write through links. "
                    "Replace it by what it points to, or choose another folder with --out."
                )
            if path.exists() and not path.is_file() and not path.is_dir():
                raise FedSeqError(f"{path} is neither a file nor a folder. Remove it, or choose another with --out.")
            if path.name in (METRICS, TIMING, LOCK) and path.exists() and path.stat().st_nlink > 1:
                raise FedSeqError(  # the only files that are written in place; others are replaced
                    f"{path} is a hard link: another file would change with it. Copy the folder without links "
                    "(cp -r), and continue the copy."
                )

    def sums(self) -> dict[str, str]:
        return read_sums(self.path / SUMS) or {}

    def as_written(self, name: str) -> bool:
        """False if it is gone or not what the run wrote; a file without a checksum is taken as it is."""
        for _ in range(2):  # a run that goes on may have written it and its checksum between our two looks
            expected = self.sums().get(name)
            if expected is None or expected == digest(self.path / name, MOST_BYTES):
                return True
        return False

    def not_as_written(self, name: str) -> FedSeqError:
        path = self.path / name
        what = f"is not what the run wrote (or its checksum in {SUMS} is damaged)" if path.exists() else "is gone"
        again = f"fedseq resume {shlex.quote(str(self.path))}"
        if not self.checkpoints.exists():
            remedy = "Put it back from a copy."
        elif name == CONFIG and path.exists():
            remedy = f"If it was changed since the run began, put it back; `{again}` says what is different."
        elif name in (CONFIG, SUPERCLIENTS):
            remedy = f"Put it back from a copy; or `{again} --restart` begins anew."
        elif name == METRICS:
            remedy = f"Put it back from a copy; `{again}` goes on from before the damage, if a checkpoint is as old."
        else:
            remedy = f"`{again}` writes it anew from the last checkpoint."
        return FedSeqError(f"{path} {what}. {remedy}")

    def read(self, name: str, form: Form = dict) -> dict[str, Any] | None:
        """What a JSON file of the run holds; None where the run never wrote one."""
        if not self.as_written(name):
            raise self.not_as_written(name)
        return read_json(self.path / name, form)

    def read_config(self, checked: bool = True) -> Config:
        if checked and not self.as_written(CONFIG):
            raise self.not_as_written(CONFIG)
        return recorded(read_yaml(self.path / CONFIG))

    def write_config(self, config: Config) -> None:
        self._write(CONFIG, to_yaml(config).encode())

    def write_environment(self, seed: int) -> None:
        self._write_json(ENVIRONMENT, {"seed": seed, **environment()})

    def read_clients(self) -> dict[str, Any] | None:
        return self.read(CLIENTS, CLIENTS_FORM)

    def write_clients(self, description: Mapping[str, Any]) -> None:
        self._write_json(CLIENTS, description)

    def read_superclients(self, num_clients: int) -> list[tuple[int, ...]]:
        groups = (self.read(SUPERCLIENTS, SUPERCLIENTS_FORM) or {}).get("superclients", [])
        if not groups or not all(groups) or any(not 0 <= one < num_clients for group in groups for one in group):
            raise FedSeqError(f"{self.superclients} does not hold superclients of {num_clients} clients.")
        return [tuple(group) for group in groups]

    def write_superclients(self, description: Mapping[str, Any]) -> None:
        self._write_json(SUPERCLIENTS, description)

    def read_model(self) -> dict[str, Any]:
        return self.read(MODEL) or {}

    def write_model(self, description: Mapping[str, Any]) -> None:
        self._write_json(MODEL, description)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self._write(name, (json.dumps(value, indent=1) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        """The file, then its checksum. While it changes it has none: a run may be killed at any time."""
        sums, found = self.sums(), hashlib.sha256(content).hexdigest()
        if sums.get(name) == found == digest(self.path / name):
            return
        if sums.pop(name, found) != found:
            write_sums(self.path / SUMS, sums)
        write_atomically(self.path / name, content)
        write_sums(self.path / SUMS, {**sums, name: found})

    def write_weights(
        self, tensors: "Mapping[str, Tensor]", best: "Mapping[str, Tensor] | None", metadata: Mapping[str, str]
    ) -> None:
        """The last thing that a run writes, and checksums of all that it leaves behind."""
        from fedseq.training import weights

        self._forget(AT_THE_END)
        if best is not None:
            weights.save(self.path / BEST, best, metadata)
        weights.save(self.weights, tensors, metadata)
        known = {name: found for name, found in self.sums().items() if name in SUMMED}
        write_sums(self.path / SUMS, {name: known.get(name) or digest(self.path / name) for name in SUMMED})

    def damaged(self) -> list[str]:
        """Files of a finished run that are not what it wrote; none where it left no checksums."""
        sums = read_sums(self.path / SUMS)
        if sums is None:
            return []
        names = {CLIENTS, SUPERCLIENTS, METRICS, WEIGHTS, *sums} & {*SUMMED}  # earlier versions kept no others
        return [name for name in SUMMED if name in names and sums.get(name) != digest(self.path / name)]

    def expect_more(self) -> None:
        """Metrics are going to grow, so that they have no checksum until the run ends again."""
        self._forget((METRICS, TIMING))

    def _forget(self, names: Iterable[str]) -> None:
        sums = self.sums()
        kept = {name: found for name, found in sums.items() if name not in names}
        if kept != sums:
            write_sums(self.path / SUMS, kept)

    def checked_weights(self, best: bool = False) -> Path:
        """The file of the final model, or of the best one."""
        path = self.path / BEST if best else self.weights
        if not self.weights.exists():
            raise FedSeqError(f"{self.path} holds no model: it was published without, or it was removed.")
        sums = read_sums(self.path / SUMS)
        if best and not path.exists() and BEST not in (sums or {}):
            raise FedSeqError(f"{self.path} has no {BEST}: runs with --patience keep the best model.")
        if sums is not None and sums.get(path.name) != digest(path):
            raise self.not_as_written(path.name)
        return path

    def drop_pretraining(self) -> None:
        """Gigabytes of weights that nobody needs any more."""
        shutil.rmtree(self.pretraining, ignore_errors=True)

    def refuse_history(self) -> None:
        """A run is never begun anew over what it has left, whatever became of its checkpoints."""
        written = (self.path / METRICS, self.weights)
        history = [path.name for path in written if path.exists() and path.stat().st_size > 0]
        if history:
            raise FedSeqError(
                f"{self.path} holds {' and '.join(history)} of a run, and no checkpoint to continue it from; nothing "
                f"was changed. To begin it anew and keep what is there, run: fedseq resume {self.path} --restart"
            )

    def set_aside(self) -> Path:
        """Move everything that a run has made into a new folder inside its own, where it can still be read as a run."""
        earlier = new_folder(self.path, "earlier")
        (earlier / CONFIG).write_bytes((self.path / CONFIG).read_bytes())
        for name in MADE:
            if (self.path / name).exists():
                (self.path / name).rename(earlier / name)
        return earlier

    def remove_if_empty(self) -> None:
        """A folder in which nothing was written, as what should have been run was refused."""
        if {path.name for path in self.path.iterdir()} <= {LOCK}:
            (self.path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()


def environment() -> dict[str, Any]:
    """With which software a run is made."""
    import numpy
    import torch

    return {
        "fedseq": __version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _git_revision() -> str | None:
    """Of the source tree this package is run from; None for an installed copy."""
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()
