"""Forming superclients by a criterion {approximator, metric, method}: pre-train, approximate, group."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedseq.basics import seeds
from fedseq.grouping import Grouping, check_limits, group_clients
from fedseq.grouping.methods import Limits
from fedseq.grouping.pretraining import Pretrained, classifier_layers, estimate, pretrain
from fedseq.options.config import Config
from fedseq.options.tables import APPROXIMATORS, Criterion
from fedseq.training.examples import Examples
from fedseq.training.jobs import Engine, Task
from fedseq.training.reporter import QUIET, Reporter
from fedseq.training.weights import FlatModel


@dataclass(frozen=True)
class Superclients:
    criterion: Criterion
    grouping: Grouping

    def describe(self) -> dict[str, Any]:
        """What is written down of them."""
        approximator, metric, method = self.criterion
        return {
            "approximator": approximator,
            "metric": metric,
            "method": method,
            "short": list(self.grouping.short),
            "unknown_clients": list(self.grouping.unknown),
            "superclients": [list(group) for group in self.grouping.groups],
        }


def criterion_of(config: Config) -> Criterion:
    """What the config says of how superclients are formed; a method without estimates has neither of the others."""
    if not config.uses_estimates:
        return None, None, config.grouping
    return config.approximator, config.grouping_metric, config.grouping


def form_superclients(
    config: Config,
    task: Task,
    model: FlatModel,
    exemplars: Examples | None,
    engine: Engine,
    theta: Tensor,
    folder: Path,
    reporter: Reporter = QUIET,
) -> Superclients:
    """Superclients of the config's criterion; what pre-training gives is kept in `folder`."""
    criterion, pretrained = criterion_of(config), None
    if criterion[0] is not None:
        keep = APPROXIMATORS[criterion[0]].layers is not None
        epochs = config.pretrain_epochs
        products = pretrain(task, model, engine, theta, [epochs], config.lr, exemplars, folder, keep, reporter)
        pretrained = products[epochs]
    formed = group_by(criterion, config, task, pretrained)
    _report(formed, reporter)
    return formed


def refuse_impossible(config: Config, task: Task, model: FlatModel) -> None:
    """What the clients or the model cannot give, before hours of pre-training."""
    approximator, _, _ = criterion_of(config)
    sizes = np.array([len(indices) for indices in task.clients])
    check_limits(sizes, limits_of(config, sizes))
    if approximator is not None and APPROXIMATORS[approximator].layers is not None:
        classifier_layers(model)


def group_by(criterion: Criterion, config: Config, task: Task, pretrained: Pretrained | None) -> Superclients:
    """Clients without examples belong nowhere: they are never drawn."""
    approximator, metric, method = criterion
    sizes = np.array([len(indices) for indices in task.clients])
    holders = np.flatnonzero(sizes)
    estimates = None
    if approximator is not None:
        assert pretrained is not None
        estimates, _ = estimate(
            approximator, "official" if config.follows_authors("confidence") else "paper", pretrained
        )
    limits = limits_of(config, sizes)
    grouping = group_clients(
        None if estimates is None else estimates[holders],
        sizes[holders],
        method=method,
        metric=metric,
        min_samples=limits.min_samples,
        max_clients=limits.max_clients,
        rng=seeds.generator(config.seed, "grouping"),
        probabilities=approximator is not None and APPROXIMATORS[approximator].probabilities,
        num_classes=max(task.num_classes, 1),
        estimate=config.group_estimate,
    )
    groups = tuple(tuple(int(holders[member]) for member in group) for group in grouping.groups)
    unknown = tuple(int(holders[client]) for client in grouping.unknown)
    return Superclients(criterion, replace(grouping, groups=groups, unknown=unknown))


def limits_of(config: Config, sizes: np.ndarray) -> Limits:
    return Limits(config.min_samples or default_min_samples(sizes, config.max_clients), config.max_clients)


def default_min_samples(sizes: np.ndarray, max_clients: int) -> int:
    """8 * floor(n/K), which is the paper's 800 on CIFAR; what the most clients of a group hold where that is less."""
    most = int(np.sort(sizes)[-max_clients:].sum())
    return max(1, min(8 * (int(sizes.sum()) // len(sizes)), most))


def _report(formed: Superclients, reporter: Reporter) -> None:
    grouping = formed.grouping
    sizes = [len(group) for group in grouping.groups]
    names = " + ".join(filter(None, formed.criterion))
    count = f"{len(sizes)} superclient{'s' if len(sizes) > 1 else ''}"
    each = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{min(sizes)}"
    reporter.note(f"{count} of {each} client{'s' if max(sizes) > 1 else ''} ({names})")
    if grouping.short:
        reporter.note(
            f"{len(grouping.short)} of them hold less than min_samples, as no group had room: {grouping.short}"
        )
    if grouping.unknown:
        reporter.note(f"clients whose pre-training diverged were grouped as unknown: {grouping.unknown}")
