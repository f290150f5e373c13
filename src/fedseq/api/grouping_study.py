"""A study of grouping criteria from a config to a folder of tables."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically, write_json
from fedseq.engines import open_engine
from fedseq.grouping import Quality
from fedseq.grouping.study import Pretraining, Study, label, needs_pretraining, quality_rows, study
from fedseq.grouping.superclients import criterion_of, refuse_impossible
from fedseq.options.config import Config
from fedseq.options.config_files import to_yaml
from fedseq.options.tables import Criterion, valid_criteria
from fedseq.rounds.prepare import Parts, initial_weights, named_parts
from fedseq.runs.folder import STUDY, SUPERCLIENTS, RunFolder, refuse_existing_run
from fedseq.training.reporter import Reporter

MEASURES = tuple(field.name for field in fields(Quality))
WRITTEN = (
    SUPERCLIENTS, "superclients", "quality.csv", "components.csv", "violins.png", "similarity.png",
    "similarity-norm.png", "components.png",
)  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    parts: Parts
    criteria: Sequence[Criterion]


def prepare(config: Config, all_criteria: bool, reporter: Reporter) -> Prepared:
    """Everything that can be refused is refused here, before any work."""
    config = replace(config, algorithm="fedseq")
    criteria = list(valid_criteria()) if all_criteria else [criterion_of(config)]
    estimating = replace(config, approximator="confidence", grouping="greedy") if all_criteria else config
    parts = named_parts(estimating, reporter)  # with exemplars, which some criteria need
    settled = replace(parts.config, approximator=config.approximator, grouping=config.grouping)
    refuse_impossible(settled, parts.task, parts.model)
    return Prepared(replace(parts, config=settled), criteria)


def refuse_others_results(folder: Path) -> None:
    """A study goes into a new folder or one of its own: nobody's superclients or tables are written over."""
    if (folder / STUDY).exists():
        return
    refuse_existing_run(folder)
    if found := [name for name in WRITTEN if (folder / name).exists()]:
        raise FedSeqError(
            f"{folder} holds {' and '.join(found)}, which fedseq group would write over. Choose another with --out."
        )


def make_study(prepared: Prepared, epochs: Sequence[int], folder: Path, reporter: Reporter) -> Study:
    parts, criteria = prepared.parts, prepared.criteria
    task, config = parts.task, parts.config
    folder.mkdir(parents=True, exist_ok=True)
    if not needs_pretraining(criteria):
        return study(config, task, criteria, epochs, None, reporter)
    engine = open_engine(config, task)
    try:
        theta = initial_weights(parts)
        where = Pretraining(parts.model, engine, theta, parts.exemplars, RunFolder(folder).pretraining)
        return study(config, task, criteria, epochs, where, reporter)
    finally:
        engine.close()


def write_tables(study: Study, folder: Path) -> Iterator[Path]:
    """Files of the study; yields what was written."""
    write_atomically(folder / STUDY, to_yaml(study.config).encode())
    yield _write_superclients(study, folder)
    yield _write_csv(study, folder / "quality.csv")
    if study.reductions:
        yield _write_components(study, folder / "components.csv")


def _write_superclients(study: Study, folder: Path) -> Path:
    """One file, or a folder with one for each criterion."""
    if len(study.formed) == 1:
        write_json(folder / SUPERCLIENTS, study.formed[0].describe())
        return folder / SUPERCLIENTS
    (folder / "superclients").mkdir(exist_ok=True)
    for formed in study.formed:
        write_json(folder / "superclients" / f"{label(formed.criterion).replace(' ', '-')}.json", formed.describe())
    return folder / "superclients"


def _write_csv(study: Study, path: Path) -> Path:
    rows: list[list[object]] = [["approximator", "metric", "method", "superclients", *MEASURES, "fewest_classes"]]
    for criterion, found in quality_rows(study):
        means = (found.means()[name] for name in MEASURES)
        rows.append([*(part or "" for part in criterion), len(found.clients), *means, found.fewest_classes])
    return _write_rows(path, rows)


def _write_components(study: Study, path: Path) -> Path:
    """How many components PCA kept, beside how many there could be and how many weights there are."""
    rows: list[list[object]] = [["approximator", "epochs", "kept", "possible", "weights"]]
    for name, by_epochs in study.reductions.items():
        for epochs, reduction in by_epochs.items():
            rows.append([name, epochs, reduction.kept, reduction.possible, reduction.weights])
    return _write_rows(path, rows)


def _write_rows(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_atomically(path, text.getvalue().encode())
    return path
