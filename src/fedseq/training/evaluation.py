"""Evaluation in fixed batches whose sums are folded in order: wherever a batch is computed, the result is the same."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedseq.training.examples import Examples, model_input
from fedseq.training.weights import FlatModel

if TYPE_CHECKING:
    from fedseq.training.jobs import Task

# Part of what is computed: sums are folded batch by batch, so another size would give other bits. The activations of a
# hundred pictures fit into a CPU's cache, those of a thousand do not, which is half as fast.
EVALUATION_BATCH = 100


@dataclass(frozen=True)
class Evaluation:
    loss: float
    accuracy: float | None  # None where targets are not classes
    per_class: tuple[float | None, ...] = ()
    per_client: tuple[float, ...] = ()  # on each looked-at client's own examples, by the clients' numbers
    undefined: int = 0  # examples for which the model's outputs are NaN: it has diverged


@dataclass(frozen=True)
class BatchSums:
    """What one batch adds to an evaluation."""

    loss: float
    hits: np.ndarray  # per class
    totals: np.ndarray
    right: np.ndarray | None = None  # per example, where clients are looked at one by one
    undefined: int = 0


def predict(
    model: FlatModel, weights: Tensor, examples: Examples, batches: Iterable[int] | None = None
) -> Iterator[tuple[Tensor, slice]]:
    """The model's outputs in fixed batches (all, or those given), and which examples they belong to."""
    model.load(weights)
    model.module.eval()
    for batch in range(num_batches(examples)) if batches is None else batches:
        part = slice(batch * EVALUATION_BATCH, (batch + 1) * EVALUATION_BATCH)
        with torch.no_grad():  # not around the loop: whoever leaves it early would stay without gradients
            outputs = model.outputs(model_input(examples.x[part], examples, model.channels_last))
        yield outputs, part


def num_batches(examples: Examples) -> int:
    return -(-len(examples.x) // EVALUATION_BATCH)


def evaluate(task: "Task", model: FlatModel, weights: Tensor) -> Evaluation:
    """Loss and accuracy on the test set."""
    return fold(task, evaluate_batches(task, model, weights, range(num_batches(task.test))))


@torch.no_grad()
def evaluate_batches(task: "Task", model: FlatModel, weights: Tensor, batches: Iterable[int]) -> list[BatchSums]:
    """The sums of some batches of the test set; `fold` makes an evaluation of all of them."""
    sums = []
    for output, part in predict(model, weights, task.test, batches):
        y = task.test.y[part]
        loss = float(task.loss(output, y)) * len(y)
        undefined = int(output.isnan().flatten(1).any(1).sum()) if output.ndim > 1 else int(output.isnan().sum())
        if not _has_classes(task):
            sums.append(BatchSums(loss, np.zeros(0), np.zeros(0), undefined=undefined))
            continue
        targets, right = y.cpu().numpy(), (output.argmax(1) == y).cpu().numpy()
        hits, totals = (np.bincount(labels, minlength=task.num_classes) for labels in (targets[right], targets))
        sums.append(BatchSums(loss, hits, totals, None if task.test.owner is None else right, undefined))
    return sums


def class_losses(model: FlatModel, weights: Tensor, examples: Examples, num_classes: int) -> tuple[float, ...]:
    """The mean cross-entropy of the examples of each class; 0 where there are none."""
    sums, counts = [0.0] * num_classes, [0] * num_classes
    for output, part in predict(model, weights, examples):
        y = examples.y[part]
        for target, loss in zip(y.tolist(), cross_entropy(output, y, reduction="none").tolist(), strict=True):
            sums[target] += loss
            counts[target] += 1
    return tuple(total / max(count, 1) for total, count in zip(sums, counts, strict=True))


def fold(task: "Task", sums: Iterable[BatchSums]) -> Evaluation:
    """Sums of all batches, in the order of the batches, in float64."""
    loss_sum, right, undefined = 0.0, [], 0
    hits, totals = np.zeros(task.num_classes, dtype=np.int64), np.zeros(task.num_classes, dtype=np.int64)
    for batch in sums:
        loss_sum += batch.loss
        undefined += batch.undefined
        if _has_classes(task):
            hits += batch.hits
            totals += batch.totals
            right += [] if batch.right is None else [batch.right]
    loss = loss_sum / max(len(task.test.y), 1)
    if not _has_classes(task):
        return Evaluation(loss, None, undefined=undefined)
    per_class = tuple(float(h / n) if n else None for h, n in zip(hits, totals, strict=True))
    per_client = _per_client(task.test.owner, np.concatenate(right)) if task.test.owner is not None and right else ()
    return Evaluation(loss, float(hits.sum() / max(totals.sum(), 1)), per_class, per_client, undefined)


def _per_client(owner: Tensor, right: np.ndarray) -> tuple[float, ...]:
    """Shares of counts, so that they are the same wherever and in whatever order the examples were evaluated."""
    numbers = owner.cpu().numpy()
    looked_at = numbers >= 0
    totals, hits = (np.bincount(numbers[chosen]) for chosen in (looked_at, looked_at & right))
    hits = np.pad(hits, (0, len(totals) - len(hits)))
    return tuple(float(hit / total) for hit, total in zip(hits, totals, strict=True) if total)


def client_spread(accuracies: tuple[float, ...]) -> dict[str, float | list[float]]:
    """How the model does for clients one by one. The worst decile is the mean over the worst tenth, at least one."""
    worst = sorted(accuracies)[: -(-len(accuracies) // 10)]
    return {
        "client_mean": float(np.mean(accuracies)),
        "client_median": float(np.median(accuracies)),
        "client_worst_decile": float(np.mean(worst)),
        "client_std": float(np.std(accuracies)),
        "client_accuracies": list(accuracies),
    }


def _has_classes(task: "Task") -> bool:
    return task.num_classes > 0 and not task.test.y.is_floating_point()
