"""From a config, or from a user's own model and data, to a finished run folder."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted, heeded, stop_requests
from fedseq.engines import open_engine
from fedseq.grouping.superclients import refuse_impossible
from fedseq.options.config import Config
from fedseq.options.config_files import refuse_code
from fedseq.options.resolve import resolve
from fedseq.policies.early_stopping import Stopping
from fedseq.rounds.loop import Round, Setup, final_model, rounds
from fedseq.rounds.open_run import OpenFolder, identity, open_folder, reopen_folder
from fedseq.rounds.prepare import Parts, card_of, initial_weights, named_parts
from fedseq.rounds.start import RoundLog, begin_or_continue
from fedseq.runs.checkpoints import CheckpointWriter, Snapshot
from fedseq.runs.notebook import default_reporter
from fedseq.runs.reading import Run
from fedseq.tracking import check_installed, tracked
from fedseq.training import weights
from fedseq.training.jobs import Engine, Task
from fedseq.training.reporter import QUIET, Reporter, Steadfast
from fedseq.training.sgd import one_thread, refuse_batches_of_one

CHECKPOINT_SECONDS = 60.0
MakeEngine = Callable[[Config, Task], Engine]


def run(
    config: Config | Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    *,
    reporter: Reporter | None = None,
    **options: Any,
) -> Run:
    """Run an experiment by names, e.g. run(dataset="digits", algorithm="fedseq", rounds=30).

    The run folder is a new one under runs/ unless given; a folder that holds an unfinished run with the same config is
    continued. In a notebook a bar shows how far it is, unless a `reporter` does.
    """
    reporter = reporter or default_reporter()
    if isinstance(config, Config):  # of which the options given go over those they do not fit
        resolved = resolve(options, config.options()) if options else config
    else:
        resolved = resolve({**(config or {}), **options})
    with open_folder(folder, resolved) as opened:
        return run_in(opened, named_parts(opened.continued(resolved), reporter), reporter)


def resume(
    folder: str | Path,
    *,
    restart: bool = False,
    trust: bool = False,
    reporter: Reporter | None = None,
    **changes: Any,
) -> Run:
    """Continue a run by names from its last checkpoint, bit for bit as if it had never stopped.

    With `restart` it begins anew with the same options, and what was there is kept in a folder inside the run's. Code
    that the folder names, such as a model of your own, is imported only with `trust`.
    """
    reporter = reporter or default_reporter()
    with reopen_folder(Path(folder)) as (opened, saved):
        if saved.engine == "flower":
            raise FedSeqError(
                f"{folder} belongs to a federation: fedseq federation run DIR, or flwr run, continues it."
            )
        if saved.dataset == "own":
            raise FedSeqError(
                f"{folder} was made in Python with data of its own: call the same function with this folder."
            )
        resolved = resolve(changes, saved.options())
        refuse_code(resolved.options(), folder, changes, trust)
        opened.refuse(resolved, anew=restart)
        parts = named_parts(resolved, reporter)
        if restart:
            first_weights(parts)
            opened, where = opened.restart()
            reporter.note(f"starting anew; what was in {folder} is now in {where}")
        return run_in(opened, parts, reporter)


def execute(
    parts: Parts, folder: str | Path | None, reporter: Reporter = QUIET, make_engine: MakeEngine = open_engine
) -> Run:
    """Run, or continue, in this folder."""
    with open_folder(folder, parts.config) as opened:
        return run_in(opened, parts, reporter, make_engine)


def run_in(opened: OpenFolder, parts: Parts, reporter: Reporter = QUIET, make_engine: MakeEngine = open_engine) -> Run:
    """Run, or continue what the folder holds."""
    config, files, reporter = parts.config, opened.files, Steadfast(reporter)
    check_installed(config)
    # The server's sums need no second thread, which would compete with the workers.
    with heeded(), one_thread():
        theta = first_weights(parts) if opened.evidence is None else parts.theta
        known, card = identity(parts), card_of(parts)
        opened.refuse_other(known)
        found = opened.before
        before = Run(files.path, config, found.metrics if found else [], found is not None and found.has_weights)
        damaged = files.damaged() if before.finished else []
        if before.finished and not damaged:
            files.write_config(config)
            return before
        if damaged:
            reporter.note(f"{' and '.join(damaged)} in {files.path} changed since the run ended")
        engine = make_engine(config, parts.task)  # before the checkpoint, which workers would keep alive
        try:
            setup, snapshot, log = begin_or_continue(opened, parts, known, card, theta, engine, reporter)
            metrics = [record for record in before.metrics if record["round"] <= snapshot.round]
            reporter.begin(config, files.path, snapshot.round)
            with tracked(config, files.tracking, metrics, reporter.note) as track:
                if not Run(files.path, config, metrics, False).complete:
                    for done in written_rounds(setup, engine, snapshot, log):
                        snapshot = done.snapshot
                        metrics.append(done.record)
                        reporter.round({**done.record, "seconds": done.seconds})
                        if track:
                            track(done.record)
        except KeyboardInterrupt:
            raise Interrupted(files.path) from None
        finally:
            engine.close()
        kept = snapshot.kept.get(Stopping.name)
        best = weights.named(parts.model, kept["weights"]) if kept else None
        files.write_weights(weights.named(parts.model, final_model(setup, snapshot.state)), best, card.metadata())
    return Run(files.path, config, metrics, True)


def first_weights(parts: Parts) -> Tensor:
    """theta_0; what a run that begins would fail by later, and leave a folder in which it cannot go on, is refused."""
    theta = initial_weights(parts)
    refuse_batches_of_one(parts.task, parts.model)
    if parts.algorithm.superclients and parts.groups is None:
        refuse_impossible(parts.config, parts.task, parts.model)
    return theta


def written_rounds(setup: Setup, engine: Engine, snapshot: Snapshot, log: RoundLog) -> Iterator[Round]:
    """Each round once its lines are written; checkpoints are saved meanwhile, and whatever ends the run."""
    every, saved = setup.config.checkpoint_every, (snapshot.round, time.monotonic())
    with stop_requests() as stopped, CheckpointWriter(log.files.checkpoints, log.evidence) as checkpoints:
        settle = partial(checkpoints.spill, limit=setup.config.memory_limit)
        last = False
        try:
            for done in rounds(setup, engine, snapshot, stopped, settle):
                log.append(done.record, done.seconds)
                snapshot, last = done.snapshot, done.last
                old = time.monotonic() - saved[1] >= CHECKPOINT_SECONDS
                if last or (old if every is None else snapshot.round - saved[0] >= every):
                    checkpoints.save(snapshot)
                    saved = snapshot.round, time.monotonic()
                yield done
        except FedSeqError:
            checkpoints.save(snapshot)
            raise
        if stopped() and not last:
            checkpoints.save(snapshot)
            raise Interrupted(log.files.path)
