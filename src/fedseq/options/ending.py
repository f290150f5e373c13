"""When a run has gone far enough: told by its options and its metrics alone, so that it ends alike however often it
was interrupted."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedseq.options.config import Config


class Best(NamedTuple):
    """The best evaluation so far."""

    round: int
    score: float


def score(record: Mapping[str, Any]) -> float | None:
    """What a round is judged by: its accuracy, or how low its loss is where targets are not classes."""
    accuracy, loss = record.get("accuracy"), record.get("loss")
    return accuracy if accuracy is not None else -loss if loss is not None else None


def better(best: Best | None, record: Mapping[str, Any]) -> Best | None:
    """The best evaluation with this round counted in; of equal ones it is the first."""
    found = score(record)
    return Best(record["round"], found) if found is not None and (best is None or found > best.score) else best


def best_of(metrics: Sequence[Mapping[str, Any]]) -> Best | None:
    best = None
    for record in metrics:
        best = better(best, record)
    return best


def ends(config: Config, record: Mapping[str, Any], best: Best | None) -> bool:
    """Whether a run ends with this round, by what was asked for or because nothing became better for too long."""
    target, patience = config.target_accuracy, config.patience
    if record["round"] >= config.rounds or (target is not None and (record["accuracy"] or 0.0) >= target):
        return True
    waited = record["round"] - best.round if best is not None and score(record) is not None else 0
    return patience is not None and waited >= patience


def far_enough(config: Config, metrics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all rounds that the config asks for are among these."""
    evaluated = [record for record in metrics if score(record) is not None]
    best = best_of(evaluated) if config.patience is not None else None
    return any(ends(config, record, best) for record in (*metrics[-1:], *evaluated[-1:]))
