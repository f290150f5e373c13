"""Opening a run folder: it is made, held by this process alone, and refused where it holds another run.

What can be refused without the data is refused before the data is read, which may take minutes.
"""

import contextlib
import hashlib
import reprlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from fedseq.algorithms.base import signature
from fedseq.basics.errors import FedSeqError
from fedseq.basics.identity import own_layers, plain
from fedseq.data.partition import label_counts
from fedseq.options.config import OPTIONS, Config, differences_in_words
from fedseq.options.config_files import names_code
from fedseq.options.datasets import OWN
from fedseq.options.resolve import recorded
from fedseq.rounds.prepare import Parts
from fedseq.runs.folder import CONFIG, ENVIRONMENT, RunFolder, new_folder, refuse_existing_run, run_name, slug
from fedseq.runs.manifests import Evidence, newest_evidence
from fedseq.runs.model_card import ModelCard
from fedseq.runs.reading import Run, read_run
from fedseq.training.jobs import Task


@dataclass(frozen=True)
class OpenFolder:
    """A run folder that this process holds, and the run that was found in it."""

    files: RunFolder
    before: Run | None
    evidence: Evidence | None  # of its newest checkpoint

    def continued(self, asked: Config) -> Config:
        """What follows from the data and the machine is as it was when the run was begun."""
        if self.before is None:
            return asked
        left_open = [name for name, found in OPTIONS.items() if getattr(asked, name) == found.undecided]
        followed = {name: getattr(self.before.config, name) for name in left_open}
        if names_code(followed):  # a folder does not decide which code is run
            raise FedSeqError(
                f"{self.files.path} holds a run of the model {followed['model']}, which was not asked for now. "
                f"Give --model {followed['model']} to continue it, or choose another folder."
            )
        return replace(asked, **followed)

    def refuse(self, asked: Config, *, anew: bool = False) -> None:
        """Refuse to continue what is there as another run, or to begin it anew as one, as far as options tell."""
        if self.before is None:
            refuse_existing_run(self.files.path)
            return
        saved, done = self.before.config, self.before.rounds
        if changed := differences_in_words(saved, self.continued(asked)):
            raise FedSeqError(f"{self.files.path} holds a run with other options: {changed}. Choose another folder.")
        if done > asked.rounds and not anew:
            raise FedSeqError(
                f"{self.files.path} has run {done} rounds already. Ask for at least as many with --rounds."
            )

    def refuse_other(self, found: Evidence) -> None:
        """Refuse to continue what is there with other data, another algorithm or another model."""
        known_as = self.known_as
        if known_as and known_as["data"] is None:
            path = self.files.path
            raise FedSeqError(
                f"{path} was published, without what a run goes on from. Repeat it: "
                f"fedseq run {shlex.quote(str(path / CONFIG))} --out OTHER"
            )
        if known_as and known_as["data"] != found["data"]:
            raise FedSeqError(
                f"{self.files.path} was run on other data than what is loaded now. Give the data it was started with."
            )
        if known_as and known_as["algorithm"] != found["algorithm"]:
            raise FedSeqError(
                f"{self.files.path} holds a run of an algorithm with other parts or hyper-parameters. Choose another."
            )
        if known_as and known_as["model"] != found["model"]:
            raise FedSeqError(
                f"{self.files.path} holds a run of {other_model(known_as['model'] or {}, found['model'])}. "
                "Choose another folder."
            )

    def describe(self, parts: Parts, card: ModelCard, found: Evidence) -> None:
        """Write down what is run. The config first: what else is in a folder without one is not ours."""
        named = {"names": list(parts.names)} if parts.names else {}
        dataset = {"dataset": parts.dataset_digest} if parts.dataset_digest else {}
        clients = {**_describe_clients(parts.task), **named, **dataset, **found}
        self.files.write_config(parts.config)
        if self.known_as is None or not self.files.as_written(ENVIRONMENT):
            self.files.write_environment(parts.config.seed)
        self.files.write_clients(clients)
        self.files.write_model({**card.describe(), "test": parts.test_source})

    @cached_property
    def known_as(self) -> Evidence | None:
        """What its newest checkpoint says of the run, or what a run without checkpoints says of itself."""
        if self.evidence:
            return self.evidence
        clients = self.files.read_clients() if self.before else None
        return {name: clients.get(name) for name in ("data", "algorithm", "model")} if clients else None

    def restart(self) -> tuple["OpenFolder", Path]:
        """The folder without what the run has made, and where that is now."""
        assert self.before is not None
        where = self.files.set_aside()
        return OpenFolder(self.files, replace(self.before, metrics=[], has_weights=False), None), where


@contextlib.contextmanager
def open_folder(folder: str | Path | None, asked: Config) -> Iterator[OpenFolder]:
    """The folder in which `asked` is to be run: the given one or a new one. If nothing comes of it, none is left."""
    ours = folder is None or not Path(folder).exists()
    files = RunFolder(run_folder(folder, asked))
    try:
        with _held(files) as opened:
            opened.refuse(asked)
            yield opened
    finally:
        if ours:
            files.remove_if_empty()


@contextlib.contextmanager
def reopen_folder(folder: Path) -> Iterator[tuple[OpenFolder, Config]]:
    """The folder of a run that is to be continued, and its config."""
    if not RunFolder(folder).holds_run:
        read_run(folder)  # says what is wrong
    with _held(RunFolder(folder)) as opened:
        assert opened.before is not None
        yield opened, opened.before.config


@contextlib.contextmanager
def _held(files: RunFolder) -> Iterator[OpenFolder]:
    with files.held():
        before = read_run(files.path, to_continue=True) if files.holds_run else None
        yield OpenFolder(files, before, refuse_edited(files, before.config) if before else None)


def refuse_edited(files: RunFolder, config: Config) -> Evidence | None:
    """What the newest checkpoint vouches for; a config that is not the one it was made with is refused."""
    evidence = newest_evidence(files.checkpoints)
    if evidence and (changed := differences_in_words(recorded(evidence["options"]), config)):
        raise FedSeqError(
            f"the config in {files.path} was changed since the run began: {changed}. Put it back to continue this run; "
            f"what may change is given as a flag, such as fedseq resume {files.path} --rounds N. With other options it "
            f"is another run: give its config to fedseq run, with --out OTHER."
        )
    return evidence


def run_folder(folder: str | Path | None, config: Config) -> Path:
    """The folder that was asked for, or a new one named after the run; made."""
    if folder == "":
        raise FedSeqError("the run folder's name is empty. Give another with --out.")
    if folder is None:
        return new_folder(Path("runs"), f"{slug(config.dataset)}-{run_name(config, {})}")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, RecursionError) as error:
        reason = {ValueError: "its name has a NUL byte", RecursionError: "its path has too many levels"}
        why = error.strerror if isinstance(error, OSError) else reason[type(error)]
        raise FedSeqError(f"cannot make the run folder {reprlib.repr(str(folder))}: {why}. Choose another.") from None
    return Path(folder)


def _describe_clients(task: Task) -> dict[str, Any]:
    """Who holds what."""
    described: dict[str, Any] = {"examples": [len(indices) for indices in task.clients]}
    if task.num_classes and len(task.train.y):  # a federation's server does not see its clients' labels
        described["label_counts"] = label_counts(task.train.y.cpu().numpy(), task.clients, task.num_classes).tolist()
    return described


def identity(parts: Parts) -> Evidence:
    """What tells this run's data, algorithm and model from others."""
    task, data = parts.task, parts.task.fingerprint
    if parts.config.dataset == OWN and task.test.owner is not None:  # of named data the source says it
        data += "-" + hashlib.sha256(task.test.owner.numpy(force=True).tobytes()).hexdigest()[:16]
    return {"data": data, "algorithm": signature(parts.algorithm), "model": _model(parts)}


def _model(parts: Parts) -> Evidence:
    """Named models and losses are known by the options and by the version of FedSeq; a user's by their code too."""
    task, found = parts.task, {"frozen": parts.task.frozen_digest}
    if parts.config.model == OWN or ":" in str(parts.config.model):
        module = parts.model.module
        found |= {"made_by": plain(task.factory), "layers": own_layers(module), "printed": plain(repr(module))}
    if own := [policy for policy in parts.policies if not type(policy).__module__.startswith("fedseq.")]:
        found |= {"policies": plain(own)}
    if task.loss is not nn.functional.cross_entropy:
        found |= {"loss": plain(task.loss)}
    return found


def other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which way a model is another, in words."""
    if before.get("loss") != now.get("loss"):
        return "a model with another loss"
    if before.get("policies") != now.get("policies"):
        return "a model under other policies"
    if before.get("frozen") != now.get("frozen"):
        return "a model with other frozen parameters"
    return "a model whose code was another"
