"""A piece of work with a folder of its own: a run, or a study of grouping criteria. Nothing is done twice.

A grid of them: options with several values each, and a run for every combination that differs.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import read_plain
from fedseq.options.config import OPTIONS, Config, all_options, differences_in_words
from fedseq.options.config_files import coerce
from fedseq.options.grammar import CENTRALIZED
from fedseq.options.option import flag
from fedseq.options.resolve import recorded, resolve
from fedseq.runs.folder import RunFolder, run_name, slug
from fedseq.runs.reading import Broken, read

FAILURE = "failure.txt"  # in a folder whose work could not be finished: why
ONE_VALUE = ("data_dir", "init_weights", "ray_address")  # a comma belongs to the path or address
LARGEST_RANGE = 1000


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


def read_values(name: str, given: Any) -> list[Any]:
    """The values of an option: a list out of a YAML file, or a text such as `0.1,0.03`; whole numbers also as `0-4`."""
    if isinstance(given, list):
        return [coerce(name, value) for value in given] or _refuse(name)
    if isinstance(given, str) and "." in name:  # of a user's own rule: commas inside a list are the list's
        return list(dict.fromkeys(coerce(name, f"[{given}]"))) or _refuse(name)
    if not isinstance(given, str) or name in ONE_VALUE or (name == "dataset" and ":" in given):
        return [coerce(name, given)]
    words = [word.strip() for word in given.split(",") if word.strip()]
    found: list[Any] = []
    options = all_options()
    for word in words:
        ends = re.fullmatch(r"(\d+)-(\d+)", word) if name in options and int in options[name].kinds else None
        if ends is None:
            found.append(coerce(name, word))
            continue
        first, last = int(ends[1]), int(ends[2])
        if not first <= last < first + LARGEST_RANGE:
            raise FedSeqError(f"{flag(name)} {word} must go up, by less than {LARGEST_RANGE}.")
        found += range(first, last + 1)
    return list(dict.fromkeys(found)) or _refuse(name)


def _refuse(name: str) -> list[Any]:
    raise FedSeqError(f"{flag(name)} takes a value, or several separated by commas.")


@dataclass(frozen=True)
class Grid:
    varied: tuple[str, ...]  # options with several values, beside the seed
    values: Mapping[Assignment, tuple[Any, ...]]  # of those options; None where the algorithm does not use it


def plan_grid(given: Mapping[str, Any], root: Path | None, preset: Mapping[str, Any] | None = None) -> Grid:
    """A run for each combination of the given values; those that differ in nothing the algorithm uses are one.

    They go over those of the preset, of which each run takes what it uses.
    """
    values = {name: read_values(name, value) for name, value in given.items()}
    own = [name for name in values if "." in name]  # hyper-parameters of a user's own rule
    varied = tuple(name for name in (*all_options(), *own) if len(values.get(name, ())) > 1 and name != "seed")
    dataset = str(values.get("dataset", [(preset or {}).get("dataset", OPTIONS["dataset"].default)])[0])
    parent = root or Path("runs") / f"sweep-{slug(dataset)}"
    planned: dict[Assignment, tuple[Any, ...]] = {}
    used: set[str] = set()
    for combination in product(*values.values()):
        options = dict(zip(values, combination, strict=True))
        if options.get("algorithm") == CENTRALIZED and "algorithm" in varied:
            options.pop("rounds", None)  # the bound's epochs are not the others' rounds
        config = on_serial_engine(resolve(options, preset, lenient=True))
        options = {name: value for name, value in options.items() if name in config.options()}
        used.update(options)
        special = {name: options[name] for name in varied if name in options and name not in ("algorithm", "alpha")}
        assignment = Assignment(parent / run_name(config, special), config)
        if any(other.folder == assignment.folder and other != assignment for other in planned):
            raise FedSeqError(f"two of these runs would both be called {assignment.folder}. Sweep them one by one.")
        planned[assignment] = tuple(options.get(name) for name in varied)
    for name in values.keys() - used:
        if name in ("workers", "ray_address"):  # out of a file: there is no flag for them
            raise FedSeqError(f"each run of a sweep has one process, and would not use {flag(name)}. Leave it out.")
        raise FedSeqError(f"none of these runs would use {flag(name)}. Leave it out, or add an algorithm that does.")
    return Grid(varied, planned)
