"""A study of grouping criteria on one partition: how good superclients are, and what pre-training tells of clients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from fedseq.data.partition import label_counts
from fedseq.grouping import Quality, Reduction, quality
from fedseq.grouping.pretraining import Pretrained, estimate, pretrain, similarity
from fedseq.grouping.superclients import Superclients, group_by
from fedseq.options.config import Config
from fedseq.options.tables import Criterion
from fedseq.training.examples import Examples
from fedseq.training.jobs import Engine, Task
from fedseq.training.reporter import Reporter
from fedseq.training.weights import FlatModel


@dataclass(frozen=True)
class Study:
    config: Config
    counts: np.ndarray  # true labels: [clients, classes]
    formed: Sequence[Superclients]  # one a criterion, after the longest pre-training
    similarity: dict[int, np.ndarray]  # epochs: cosine between clients' parameters
    reductions: dict[str, dict[int, Reduction]]  # approximator: epochs: PCA


def needs_pretraining(criteria: Sequence[Criterion]) -> bool:
    return any(approximator for approximator, _, _ in criteria)


def study(
    config: Config,
    task: Task,
    criteria: Sequence[Criterion],
    epochs: Sequence[int],
    pretraining: "Pretraining | None",
    reporter: Reporter,
) -> Study:
    """Superclients by each criterion; `pretraining` is where clients are pre-trained, None where nobody asks."""
    products: dict[int, Pretrained] = {}
    if pretraining is not None:
        products = pretrain(
            task, pretraining.model, pretraining.engine, pretraining.theta, epochs, config.lr, pretraining.exemplars,
            pretraining.folder, True, reporter,
        )  # fmt: skip
    last = products.get(max(epochs))
    formed = []
    for number, criterion in enumerate(criteria):
        formed.append(group_by(criterion, config, task, last))
        reporter.stage(number + 1, len(criteria), "grouping")
    return Study(
        config=config,
        counts=label_counts(task.train.y.cpu().numpy(), task.clients, task.num_classes),
        formed=formed,
        similarity={count: similarity(product) for count, product in products.items()},
        reductions=_reductions(criteria, products),
    )


@dataclass(frozen=True)
class Pretraining:
    model: FlatModel
    engine: Engine
    theta: Tensor
    exemplars: Examples | None
    folder: Path


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
    return " ".join(filter(None, criterion))


def quality_rows(study: Study) -> Iterator[tuple[Criterion, Quality]]:
    """Each criterion, and how good its superclients are."""
    for formed in study.formed:
        yield formed.criterion, quality(study.counts, formed.grouping.groups)
