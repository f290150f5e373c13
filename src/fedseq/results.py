"""A run folder: everything a run leaves behind, and how to read it back.

config.yaml           every option, resolved: `fedseq run config.yaml` repeats the run
environment.json      versions, git revision, seed
clients.json          examples per client and class
superclients.json     the groups, where there are any
metrics.jsonl         a line a round; no clock, host or engine, so that the same run gives the same bytes
timing.jsonl          a line a round: seconds
weights.safetensors   the final model as named tensors
checkpoints/          what `fedseq resume` continues from
"""

import fcntl
import json
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedseq.config import Config
from fedseq.configfile import from_mapping, read_yaml, to_yaml
from fedseq.errors import FedSeqError
from fedseq.files import write_atomically, write_json
from fedseq.version import VERSION


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
                f"can't make the run folder {folder}: {error.strerror}. Choose another with --out."
            ) from None
        return folder
    raise FedSeqError(f"{parent} is full of runs named {name}. Choose another with --out.")


def refuse_existing_run(folder: Path) -> None:
    if (folder / "group.yaml").exists():
        raise FedSeqError(f"{folder} holds the results of fedseq group. Choose another folder with --out.")
    if any((folder / name).exists() for name in ("config.yaml", "metrics.jsonl", "weights.safetensors", "checkpoints")):
        raise FedSeqError(
            f"{folder} already holds a run, and runs are never overwritten. "
            f"Continue it with: fedseq resume {folder}   or choose another folder with --out."
        )


def lock(folder: Path) -> IO[str]:
    """Hold the run folder for this process. The system lets go of it when the process dies, however it dies."""
    handle = (folder / ".lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise FedSeqError(
            f"another process is running in {folder}. Wait for it, or choose another with --out."
        ) from None
    return handle


def write_description(folder: Path, config: Config) -> None:
    """What was asked for and with which software."""
    write_json(folder / "environment.json", {"seed": config.seed, **environment()})
    write_atomically(folder / "config.yaml", to_yaml(config).encode())


def environment() -> dict[str, Any]:
    import numpy
    import torch

    return {
        "fedseq": VERSION,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _git_revision() -> str | None:
    """Of the source tree this package is run from; None for an installed copy."""
    source = Path(__file__).resolve().parents[2]
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


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    folder: Path
    config: Config
    metrics: list[dict[str, Any]]
    has_weights: bool

    @property
    def complete(self) -> bool:
        """All rounds that the config asks for are there."""
        target = self.config.until_accuracy
        reached = target is not None and any(accuracy >= target for _, accuracy in self.evaluations[-1:])
        return self.rounds >= (self.config.rounds or 0) or reached

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
        window = min(last, max(1, self.rounds // 10))
        values = [accuracy for round_, accuracy in self.evaluations if round_ > self.rounds - window]
        return sum(values) / len(values) if values else None

    def weights(self) -> dict[str, Any]:
        """The final model, as the tensors that `load_state_dict` takes."""
        from safetensors.torch import load_file

        return load_file(self.folder / "weights.safetensors")

    def best_accuracy(self) -> float | None:
        return max((accuracy for _, accuracy in self.evaluations), default=None)

    def crossing(self, target: float) -> int | None:
        """First round at which the accuracy is at least `target`."""
        return next((round_ for round_, accuracy in self.evaluations if accuracy >= target), None)


def read_run(folder: Path) -> Run:
    if not folder.is_dir():
        raise FedSeqError(f"there is no run folder {folder}. List the ones you have with: fedseq ls")
    path = folder / "config.yaml"
    if not path.exists():
        raise FedSeqError(f"{folder} is not a run folder: it has no config.yaml.")
    return Run(folder, from_mapping(read_yaml(path)), read_metrics(folder), (folder / "weights.safetensors").exists())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    try:
        complete, _, _ = path.read_text(encoding="utf-8").rpartition(
            "\n"
        )  # a line that is being written has no end yet
        return [json.loads(line) for line in complete.splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FedSeqError(f"can't read {path}: {error}") from None


def find_runs(parent: Path) -> list[Path]:
    """Run folders at or below `parent`, oldest first."""
    found = {path.parent for path in parent.glob("**/config.yaml")}
    return sorted(found, key=lambda folder: ((folder / "config.yaml").stat().st_mtime_ns, str(folder)))
