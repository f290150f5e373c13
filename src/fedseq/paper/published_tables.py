"""The paper's published numbers, which published.yaml holds: every cell of Tables I to IV, None where it shows `-`."""

from importlib import resources
from typing import Any

import yaml

ALPHAS = (0.0, 0.2, 0.5)
SHARES = (0.7, 0.8, 0.9)
MEASURES = ("balance ratio", "covered classes")
Rate = tuple[int | None, float | None]  # the round of a target, and how much sooner than FedAvg that is

_NUMBERS: dict[str, Any] = yaml.safe_load((resources.files("fedseq.paper") / "published.yaml").read_text("utf-8"))
CENTRALIZED: dict[str, float] = _NUMBERS["CENTRALIZED"]  # accuracy in %
TABLE_1: dict[str, dict[str, list[float | None]]] = _NUMBERS["TABLE_1"]  # final accuracy in %, by alpha
TABLE_2: dict[str, dict[str, list[list[Rate]]]] = _NUMBERS["TABLE_2"]  # by alpha, then by share
TABLE_3: dict[str, dict[str, list[float | None]]] = _NUMBERS["TABLE_3"]  # final accuracy in %, by alpha
TABLE_4: dict[str, dict[str, tuple[float, float]]] = _NUMBERS["TABLE_4"]  # balance ratio, covered classes

_NAMES_IN_TABLE_4 = {
    None: "-",
    "classifier-all": "classifierAll",
    "classifier-last2": "classifierLast2",
    "classifier-last": "classifierLast",
    "confidence": "confidence",
    "greedy": "Greedy",
    "kmeans": "K-means",
    "random": "Random",
    "cosine": "Cosine distance",
    "wasserstein": "Wasserstein distance",
    "kl": "KL divergence",
    "gini": "Gini index",
    "euclidean": "Euclidean distance",
}


def published_quality(
    dataset: str, approximator: str | None, metric: str | None, method: str
) -> tuple[float, float] | None:
    """Table IV's balance ratio and covered classes of a criterion; None where the paper has none."""
    row = " / ".join(_NAMES_IN_TABLE_4.get(part, "") for part in (approximator, method, metric))
    found = TABLE_4.get(dataset, {}).get(row)
    return (found[0], found[1]) if found else None
