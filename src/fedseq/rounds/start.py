"""Where a run goes on: its newest good checkpoint, or its beginning, with everything that its rounds need.

Clients are grouped here, once: a run that is continued has the superclients that were written down. `RoundLog` adds
rounds to the run folder, and collects what a checkpoint vouches for beside its own files.
"""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fedseq.algorithms.base import Setting, initial_state
from fedseq.algorithms.robust import too_few
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import append_line, cut, digest, hashed
from fedseq.grouping.superclients import form_superclients
from fedseq.policies.privacy import budget, open_ledger
from fedseq.rounds.loop import Setup, Unit, plan
from fedseq.rounds.open_run import OpenFolder
from fedseq.rounds.prepare import Parts
from fedseq.runs.checkpoints import Snapshot, load_checkpoint, save_checkpoint
from fedseq.runs.folder import METRICS, TIMING, RunFolder
from fedseq.runs.manifests import Evidence
from fedseq.runs.model_card import ModelCard
from fedseq.training.jobs import Engine
from fedseq.training.reporter import Reporter

_LINES = {"metrics": METRICS, "timing": TIMING}


class RoundLog:
    """The run folder while rounds are added to it."""

    def __init__(self, files: RunFolder, fixed: Evidence, kept: Evidence | None = None):
        """`fixed` is what never changes in a run. Lines after those of `kept` are cut off."""
        self.files = files
        self.fixed = fixed
        lengths = {part: kept[part]["length"] if kept else 0 for part in _LINES}
        for part, name in _LINES.items():
            cut(files.path / name, lengths[part])
        self.digests = {name: hashed(files.path / name, lengths[part]) for part, name in _LINES.items()}
        if kept and kept["timing"].get("sha256", found := self.digests[TIMING].hexdigest()) != found:
            # It decides nothing and cannot be made again: what is left of it is kept beside the new one.
            if (files.path / TIMING).exists():
                (files.path / TIMING).replace(files.path / f"{TIMING}.damaged")
            self.digests[TIMING] = hashed(files.path / TIMING)

    def append(self, record: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        for name, line in ((METRICS, record), (TIMING, timing)):
            self.digests[name].update(append_line(self.files.path / name, line))

    def evidence(self) -> Evidence:
        """As of now; the lines are safe on the disk then."""
        return self.fixed | {
            part: {"length": _synced_length(self.files.path / name), "sha256": self.digests[name].hexdigest()}
            for part, name in _LINES.items()
        }


def begin_or_continue(
    opened: OpenFolder, parts: Parts, identity: Evidence, card: ModelCard, theta: Tensor, engine: Engine,
    reporter: Reporter,
) -> tuple[Setup, Snapshot, RoundLog]:  # fmt: skip
    """What the rounds need, and where they go on: the newest good checkpoint, or round 0, which is made one."""
    config, task, files = parts.config, parts.task, opened.files
    saved = load_checkpoint(files.checkpoints, config.home, partial(damage, files))
    if saved is None:
        files.refuse_history()
    opened.describe(parts, card, identity)
    files.expect_more()
    sizes = [len(indices) for indices in task.clients]
    ledger = open_ledger(config, files.ledger, len(sizes)) if config.private else None
    estimating = ledger.start(config, sizes, parts.groups is not None) if ledger and saved is None else ()
    units = _units(parts, opened, engine, theta, reporter)
    per_round = units_per_round(config.fraction, len(units))
    setting = Setting(len(sizes), len(units), per_round, len(parts.model.parameters))
    spending = [budget(config, ledger, per_round / len(units), estimating)] if ledger else []
    setup = Setup(config, parts.algorithm, units, setting, (*parts.policies, *spending))
    grouped = digest(files.superclients) if parts.algorithm.superclients else None
    fixed = {**identity, "options": config.options(), "superclients": grouped}
    log = RoundLog(files, fixed, saved[1] if saved else None)
    initial, kept = initial_state(parts.algorithm, theta, setting), {one.name: one.begin() for one in setup.policies}
    if saved is None:  # from now on there is always a checkpoint to continue from
        snapshot = Snapshot(0, initial, kept=kept)
        save_checkpoint(files.checkpoints, snapshot, log.evidence())
    else:
        snapshot = replace(saved[0], kept={name: saved[0].kept.get(name, state) for name, state in kept.items()})
        if not snapshot.fits(initial):
            raise FedSeqError(f"the checkpoint in {files.checkpoints} is of another model or algorithm.")
    _warn_of_few(setup, snapshot)
    return setup, snapshot, log


def units_per_round(fraction: float, units: int) -> int:
    return max(1, int(fraction * units + 1e-9))  # 0.29 * 100 is 28.999999999999996


def _warn_of_few(setup: Setup, snapshot: Snapshot) -> None:
    """Of models that are merged in a round, by a robust rule or at all."""
    units, fraction = setup.setting.num_units, setup.config.fraction
    if setup.setting.units_per_round == 1 < units:
        kind = "superclients" if setup.algorithm.superclients else "clients"
        warnings.warn(
            f"--fraction {fraction:g} of {units} {kind} draws one a round, so that nothing is averaged. "
            f"Use --fraction {math.ceil(200 / units) / 100:g} or more.",
            stacklevel=4,
        )
    planned = plan(setup, snapshot) if setup.algorithm.least_models > 1 else None
    if planned and (doubt := too_few(setup.algorithm, setup.setting, len(planned.jobs))):
        warnings.warn(doubt, stacklevel=4)


def _units(parts: Parts, opened: OpenFolder, engine: Engine, theta: Tensor, reporter: Reporter) -> Sequence[Unit]:
    """The clients that hold examples, or the superclients they are grouped into."""
    files = opened.files
    if not parts.algorithm.superclients:
        return [(client,) for client, indices in enumerate(parts.task.clients) if len(indices)]
    if opened.evidence is not None:
        formed = files.read_superclients(len(parts.task.clients))
        if parts.groups is not None and formed != list(parts.groups):
            raise FedSeqError(f"{files.path} holds a run with other groups. Choose another folder.")
        return formed
    if parts.groups is not None:
        files.write_superclients({"method": "given", "superclients": parts.groups})
        return parts.groups
    superclients = form_superclients(
        parts.config, parts.task, parts.model, parts.exemplars, engine, theta, files.pretraining, reporter
    )
    files.write_superclients(superclients.describe())
    groups = superclients.grouping.groups
    if len(groups) == 1 < len(parts.task.clients):
        warnings.warn(
            f"all {len(parts.task.clients)} clients are in one superclient, so a round trains all of them in a row. "
            "For several superclients, lower --min-samples or --max-clients.",
            stacklevel=4,
        )
    return groups


def _synced_length(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.seek(0, os.SEEK_END)


def damage(files: RunFolder, evidence: Evidence) -> str | None:
    """What in the folder is not what the checkpoint vouches for, if anything."""
    lines = evidence["metrics"]
    if hashed(files.path / METRICS, lines["length"]).hexdigest() != lines["sha256"]:
        return f"{METRICS} does not begin with the lines that were written up to then"
    if evidence["superclients"] not in (None, digest(files.superclients)):
        return f"{files.superclients.name} is not what was written"
    return None
