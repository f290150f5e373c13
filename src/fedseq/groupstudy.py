"""A study of grouping criteria on one partition: how good superclients are, and what pre-training tells of clients."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.table import Table

from fedseq.config import Config, known
from fedseq.configfile import to_yaml
from fedseq.data.partition import label_counts
from fedseq.experiment import open_engine
from fedseq.files import write_atomically, write_json
from fedseq.grouping import Reduction, quality, valid_criteria
from fedseq.parts import Parts, initial_weights, named_parts
from fedseq.pretraining import Pretrained, estimate, pretrain, similarity
from fedseq.progress import Reporter
from fedseq.report import group_figures as figures
from fedseq.superclients import Criterion, Superclients, criterion_of, group_by
from fedseq.training import build

Published = Callable[[str, str | None, str | None, str], tuple[float, float] | None]
MEASURES = ("balance", "covered", "distinct", "examples", "clients")


@dataclass(frozen=True)
class Prepared:
    parts: Parts
    criteria: Sequence[Criterion]


@dataclass(frozen=True)
class Study:
    config: Config
    class_names: Sequence[str]
    counts: np.ndarray  # true labels: [clients, classes]
    formed: Sequence[Superclients]  # one a criterion, after the longest pre-training
    similarity: dict[int, np.ndarray]  # epochs: cosine between clients' parameters
    reductions: dict[str, dict[int, Reduction]]  # approximator: epochs: PCA


def prepare(config: Config, all_criteria: bool, reporter: Reporter) -> Prepared:
    """Everything that can be refused is refused here, before any work."""
    config = replace(config, algorithm="fedseq")
    criteria = list(valid_criteria()) if all_criteria else [criterion_of(config)]
    return Prepared(named_parts(config, reporter), criteria)


def study(prepared: Prepared, epochs: Sequence[int], folder: Path, reporter: Reporter) -> Study:
    parts, criteria = prepared.parts, prepared.criteria
    task, config = parts.task, parts.config
    folder.mkdir(parents=True, exist_ok=True)
    products: dict[int, Pretrained] = {}
    if any(approximator for approximator, _, _ in criteria):
        engine = open_engine(config, task)
        theta = initial_weights(config, task, build(task))
        try:
            products = pretrain(
                task, engine, theta, epochs, known(config.lr), parts.exemplars, folder / "pretraining", True, reporter
            )
        finally:
            engine.close()
    last = products.get(max(epochs))
    formed = []
    for number, criterion in enumerate(criteria):
        formed.append(group_by(criterion, config, task, last))
        reporter.stage(number + 1, len(criteria), "grouping")
    return Study(
        config=config,
        class_names=[str(c) for c in range(task.num_classes)],
        counts=label_counts(task.train.y.cpu().numpy(), task.clients, task.num_classes),
        formed=formed,
        similarity={count: similarity(product) for count, product in products.items()},
        reductions=_reductions(criteria, products),
    )


def _reductions(criteria: Sequence[Criterion], products: dict[int, Pretrained]) -> dict[str, dict[int, Reduction]]:
    names = dict.fromkeys(a for a, _, _ in criteria if a is not None and a != "confidence")
    found: dict[str, dict[int, Reduction]] = {}
    for name in names:
        for count, product in products.items():
            _, reduction = estimate(name, "paper", product)
            assert reduction is not None
            found.setdefault(name, {})[count] = reduction
    return found


def label(criterion: Criterion) -> str:
    return " ".join(part for part in criterion if part)


def quality_rows(study: Study) -> Iterator[tuple[Criterion, dict[str, float], int]]:
    """Each criterion's mean measures over its superclients, and how many of them there are."""
    for formed in study.formed:
        yield formed.criterion, quality(study.counts, formed.grouping.groups).means(), len(formed.grouping.groups)


def quality_table(study: Study, published: Published) -> Table:
    """Ours, and beside it the paper's mean over alpha 0, 0.2 and 0.5 where it has one."""
    config = study.config
    table = Table(
        "approximator", "metric", "method", "balance ratio", "covered classes", "distinct classes", "superclients",
        "clients each", title=f"{config.dataset}, alpha {config.alpha:g}, seed {config.seed}: mean over superclients",
    )  # fmt: skip
    values = {criterion: published(config.dataset, *criterion) for criterion, _, _ in quality_rows(study)}
    if any(values.values()):
        table.add_column("paper: balance / covered, mean over alphas")
    for criterion, means, count in quality_rows(study):
        value = values[criterion]
        table.add_row(
            *(part or "-" for part in criterion), f"{means['balance']:.3f}", f"{means['covered']:.3f}",
            f"{means['distinct']:.2f}", str(count), f"{means['clients']:.2f}",
            *([f"{value[0]:.3f} / {value[1]:.3f}" if value else "-"] if any(values.values()) else []),
        )  # fmt: skip
    return table


def write(study: Study, folder: Path) -> Iterator[Path]:
    """Files and pictures of the study; yields what was written."""
    write_atomically(folder / "group.yaml", to_yaml(study.config).encode())
    yield _write_superclients(study, folder)
    yield _write_csv(study, folder / "quality.csv")
    groups = {label(formed.criterion): formed.grouping.groups for formed in study.formed}
    yield figures.violins(study.counts, groups, study.class_names, folder / "violins.png")
    if study.similarity:
        yield figures.similarity_maps(study.similarity, folder / "similarity.png")
    if len(study.similarity) > 1:
        yield figures.similarity_norms(study.similarity, folder / "similarity-norm.png")
    if study.reductions:
        yield _write_components(study, folder / "components.csv")
        shares = {
            name: {epochs: reduction.kept / reduction.possible for epochs, reduction in by_epochs.items()}
            for name, by_epochs in study.reductions.items()
        }
        yield figures.components_kept(shares, folder / "components.png")


def _write_superclients(study: Study, folder: Path) -> Path:
    """One file, or a folder with one for each criterion."""
    if len(study.formed) == 1:
        write_json(folder / "superclients.json", study.formed[0].describe())
        return folder / "superclients.json"
    (folder / "superclients").mkdir(exist_ok=True)
    for formed in study.formed:
        write_json(folder / "superclients" / f"{label(formed.criterion).replace(' ', '-')}.json", formed.describe())
    return folder / "superclients"


def _write_csv(study: Study, path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["approximator", "metric", "method", "superclients", *MEASURES])
        for criterion, means, count in quality_rows(study):
            writer.writerow([*(part or "" for part in criterion), count, *(means[name] for name in MEASURES)])
    return path


def _write_components(study: Study, path: Path) -> Path:
    """How many components PCA kept, beside how many there could be and how many weights there are."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["approximator", "epochs", "kept", "possible", "weights"])
        for name, by_epochs in study.reductions.items():
            for epochs, reduction in by_epochs.items():
                writer.writerow([name, epochs, reduction.kept, reduction.possible, reduction.weights])
    return path
