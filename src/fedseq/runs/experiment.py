"""From a config, or from a user's own model and data, to a finished run folder."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted, heeded
from fedseq.engines import open_engine
from fedseq.grouping.superclients import refuse_impossible
from fedseq.options.config import Config
from fedseq.options.config_files import refuse_code
from fedseq.options.resolve import resolve
from fedseq.runs.assembly import Parts, initial_weights, named_parts
from fedseq.runs.beginning import begin_or_continue
from fedseq.runs.card import card_of
from fedseq.runs.notebook import default_reporter
from fedseq.runs.opening import OpenFolder, open_folder, reopen_folder
from fedseq.runs.private import used_up
from fedseq.runs.reading import Run
from fedseq.runs.rounds import final_model, run_rounds
from fedseq.tracking import check_installed, tracked
from fedseq.training import weights
from fedseq.training.failures import attackers, honest_at_first, poisoned
from fedseq.training.jobs import Engine, Task
from fedseq.training.reporter import QUIET, Reporter, Steadfast
from fedseq.training.sgd import build, one_thread, refuse_batches_of_one

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
            _refuse_early(parts)
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
    parts = _under_attack_and_watch(parts)
    config, files, reporter = parts.config, opened.files, Steadfast(reporter)
    check_installed(config)
    # The server's sums need no second thread, which would compete with the workers.
    with heeded(), one_thread():
        if opened.evidence is None:
            _refuse_early(parts)
        opened.describe(parts)
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
            model = build(parts.task)
            setup, snapshot = begin_or_continue(parts, files, engine, model, reporter)
            metrics = [record for record in before.metrics if record["round"] <= snapshot.round]
            reporter.begin(config, files.path, snapshot.round)
            with tracked(config, files.tracking, metrics, reporter.note) as track:
                if not Run(files.path, config, metrics, False).complete:
                    for record, timing, snapshot in run_rounds(setup, engine, snapshot):  # noqa: B007, B020
                        metrics.append(record)
                        reporter.round({**record, "seconds": timing})
                        track(record)
        except KeyboardInterrupt:
            raise Interrupted(files.path) from None
        finally:
            engine.close()
        best = weights.named(model, snapshot.best_model["weights"]) if snapshot.best else None
        files.write_weights(weights.named(model, final_model(setup, snapshot.state)), best, card_of(parts).metadata())
    run = Run(files.path, config, metrics, True)
    if setup.privacy and not run.complete:
        spent = setup.privacy.spent(snapshot.visits, snapshot.round)
        warnings.warn(used_up(config, snapshot.round, spent), stacklevel=2)
    return run


def _refuse_early(parts: Parts) -> None:
    """What a run that begins would fail by later, and leave a folder in which it cannot go on."""
    model = build(parts.task)
    initial_weights(parts.config, parts.task, model)
    refuse_batches_of_one(parts.task, model)
    attackers(parts.config, len(parts.task.clients))  # of clients that exist the number was not known before
    if parts.algorithm.superclients and parts.groups is None:
        refuse_impossible(parts.config, parts.task)


def _under_attack_and_watch(parts: Parts) -> Parts:
    """Attackers' data as they falsified it; exemplars where the gate looks at them."""
    config, task = parts.config, parts.task
    falsified = poisoned(config, task.train, task.clients, task.num_classes)
    changed = {"late_labels": falsified.y} if honest_at_first(config) else {"train": falsified}
    task = replace(task, **changed)
    if config.checks_exemplars:
        if parts.exemplars is None:
            raise FedSeqError(
                "--update-check exemplars needs public exemplars of classes, and this test set gives none. "
                "Use --update-check size."
            )
        task = replace(task, exemplars=parts.exemplars.on(config.home))
    return replace(parts, task=task)
