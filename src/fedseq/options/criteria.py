"""Grouping criteria by name: which approximators, metrics and methods fit together follows from their rows."""

from collections.abc import Iterator

from fedseq.basics.errors import FedSeqError
from fedseq.options.tables import APPROXIMATORS, METHODS, METRICS

Criterion = tuple[str | None, str | None, str]  # approximator, metric, method


def valid_metrics(method: str, probabilities: bool) -> tuple[str | None, ...]:
    """The metrics that a method takes for these estimates; None is no metric."""
    takes = METHODS.row(method).metrics
    if takes == "none":
        return (None,)
    if takes not in ("any", "optional"):
        return (takes,)
    named = tuple(name for name, row in METRICS.items() if probabilities or not row.probabilities)
    return (None, *named) if takes == "optional" else named


def default_metric(approximator: str | None, method: str) -> str | None:
    """`kl` is the paper's choice for confidence vectors, `cosine` its best for classifiers."""
    valid = valid_metrics(method, _probabilities(approximator))
    return next(metric for metric in (None, "kl", "cosine", *valid) if metric in valid)


def check_criterion(approximator: str | None, metric: str | None, method: str) -> None:
    """Refuses names that do not exist and parts that do not fit together."""
    if approximator is None and METHODS.row(method).estimates:
        raise FedSeqError(f"method '{method}' needs an approximator. Valid: {', '.join(APPROXIMATORS)}.")
    check_metric(metric, method, _probabilities(approximator))


def check_metric(metric: str | None, method: str, probabilities: bool) -> None:
    if metric is not None:
        METRICS.row(metric)
    valid = valid_metrics(method, probabilities)
    if metric not in valid:
        kind = "confidence" if probabilities else "classifier"
        names = ", ".join(name or "none" for name in valid)
        raise FedSeqError(
            f"metric '{metric or 'none'}' does not fit method '{method}' on {kind} estimates. Valid metrics: {names}."
        )


def valid_criteria() -> Iterator[Criterion]:
    """Every distinct criterion; a metric that a method could do without is left out."""
    yield from ((None, None, method) for method, row in METHODS.items() if not row.estimates)
    for approximator, facts in APPROXIMATORS.items():
        for method, row in METHODS.items():
            if row.metrics == "optional":
                yield approximator, None, method
            elif row.estimates:
                yield from ((approximator, metric, method) for metric in valid_metrics(method, facts.probabilities))


def _probabilities(approximator: str | None) -> bool:
    return approximator is not None and APPROXIMATORS.row(approximator).probabilities
