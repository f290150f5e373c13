"""Where a run goes on: its newest good checkpoint, or its beginning, with everything that its rounds need.

Clients are grouped here, once: a run that is continued has the superclients that were written down.
"""

import warnings
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from fedseq.algorithms.base import Setting, initial_state
from fedseq.algorithms.robust import too_few
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import digest
from fedseq.grouping.superclients import form_superclients
from fedseq.runs.assembly import Parts, initial_weights
from fedseq.runs.checkpoints import load_checkpoint, save_checkpoint
from fedseq.runs.evidence import RoundLog, damage
from fedseq.runs.folder import RunFolder
from fedseq.runs.planning import Setup, Unit, chains_in, units_per_round
from fedseq.runs.private import make_budget, open_ledger
from fedseq.runs.snapshots import Snapshot
from fedseq.training.failures import attackers
from fedseq.training.jobs import Engine
from fedseq.training.reporter import Reporter
from fedseq.training.weights import FlatModel


def begin_or_continue(
    parts: Parts, files: RunFolder, engine: Engine, model: FlatModel, reporter: Reporter
) -> tuple[Setup, Snapshot]:
    """What the rounds need, and where they go on: the newest good checkpoint, or round 0, which is made one."""
    config, task = parts.config, parts.task
    saved = load_checkpoint(files.checkpoints, config.home, partial(damage, files))
    if saved is None:
        files.refuse_history()
    files.write_config(config)
    files.expect_more()
    theta = model.vector.clone() if saved else initial_weights(config, task, model)
    sizes = [len(indices) for indices in task.clients]
    ledger = open_ledger(config, files, len(sizes))
    visits = ledger.start(config, sizes, parts.groups is not None) if ledger and saved is None else ()
    units = _units(parts, files, saved is not None, engine, theta, reporter)
    per_round = units_per_round(config.fraction, len(units))
    grouped = digest(files.superclients) if parts.algorithm.superclients else None
    setup = Setup(
        config=config,
        algorithm=parts.algorithm,
        units=units,
        sizes=sizes,
        attackers=attackers(config, len(sizes)),
        setting=Setting(len(sizes), len(units), per_round, len(model.parameters)),
        log=RoundLog(files, parts, grouped, saved[1] if saved else None),
        privacy=make_budget(config, ledger, per_round / len(units)),
    )
    if doubt := too_few(parts.algorithm, setup.setting, chains_in(setup, 1)):
        warnings.warn(doubt, stacklevel=3)
    initial = initial_state(parts.algorithm, theta, setup.setting)
    if saved is None:  # from now on there is always a checkpoint to continue from
        snapshot = Snapshot(0, initial, visits=visits)
        save_checkpoint(files.checkpoints, snapshot, setup.log.evidence())
        return setup, snapshot
    if not saved[0].fits(initial):
        raise FedSeqError(f"the checkpoint in {files.checkpoints} is of another model or algorithm.")
    return setup, saved[0]


def _units(
    parts: Parts, files: RunFolder, continued: bool, engine: Engine, theta: Tensor, reporter: Reporter
) -> Sequence[Unit]:
    """The clients that hold examples, or the superclients they are grouped into."""
    if not parts.algorithm.superclients:
        return [(client,) for client, indices in enumerate(parts.task.clients) if len(indices)]
    if continued:
        formed = files.read_superclients(len(parts.task.clients))
        if parts.groups is not None and formed != list(parts.groups):
            raise FedSeqError(f"{files.path} holds a run with other groups. Choose another folder.")
        return formed
    if parts.groups is not None:
        files.write_superclients({"method": "given", "superclients": parts.groups})
        return parts.groups
    superclients = form_superclients(
        parts.config, parts.task, parts.exemplars, engine, theta, files.pretraining, reporter
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
