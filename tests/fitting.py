"""Options for tests that run many algorithms: each refuses what it would not use."""

from typing import Any

from fedseq.options.grammar import parse_algorithm
from fedseq.options.resolve import resolve


def that_fit(algorithm: str, groups: Any = None, **options: Any) -> dict[str, Any]:
    """Of these options, those that the algorithm uses, and the groups if it has superclients."""
    used = resolve({"dataset": "own", "algorithm": algorithm, **options}, lenient=True).options()
    chosen = {name: value for name, value in options.items() if name in used}
    return {**chosen, "groups": groups} if groups is not None and parse_algorithm(algorithm).superclients else chosen
