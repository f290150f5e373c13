"""Names a user may write, as plain data: `--help` and the checks of a config read them without importing torch."""

import math
from typing import NamedTuple

from fedseq.errors import FedSeqError, unknown

PARTITIONS = ("hsu", "official", "iid", "shards")
AUGMENTATIONS = ("crop-flip", "none")
MODELS = ("lenet5", "mlp", "small-cnn")
SCHEDULES = ("constant", "cosine")
ENGINES = ("processes", "ray", "serial")

APPROXIMATORS = ("confidence", "classifier-all", "classifier-last2", "classifier-last")
METRICS = ("cosine", "euclidean", "wasserstein", "kl", "gini")
METHODS = ("greedy", "exchange", "kmeans", "random")

TOPOLOGIES = ("fedseq", "fedseqinter")
LOCAL_RULES = ("fedavg", "fedprox", "scaffold", "feddyn")
SERVER_RULES = ("fedavgm", "fedadam", "fedyogi", "fairavg", "median", "trimmed-mean")


class AlgorithmName(NamedTuple):
    """`[fedseq|fedseqinter][+local rule][+server rule]`, taken apart; an empty part is the neutral choice."""

    topology: str = ""
    local: str = ""
    server: str = ""

    @property
    def superclients(self) -> bool:
        return bool(self.topology)


def parse_algorithm(name: str) -> AlgorithmName:
    """`centralized` and every composition; parts come in this order, each at most once."""
    if name == "centralized":
        return AlgorithmName()
    taken: dict[str, str] = {}
    order = {"topology": TOPOLOGIES, "local": LOCAL_RULES, "server": SERVER_RULES}
    for part in name.split("+"):
        kind = next((kind for kind, valid in order.items() if part in valid), None)
        if kind is None:
            raise unknown("algorithm", part, ("centralized", *TOPOLOGIES, *LOCAL_RULES, *SERVER_RULES))
        if any(list(order).index(kind) <= list(order).index(earlier) for earlier in taken):
            raise FedSeqError(
                f"algorithm '{name}' is not in the form [fedseq|fedseqinter][+local rule][+server rule]: "
                f"'{part}' can't stand there. Example: fedseq+fedprox+fedavgm."
            )
        taken[kind] = part
    parsed = AlgorithmName(**taken)
    if parsed.local == "feddyn" and parsed.server:
        raise FedSeqError(
            f"algorithm '{name}': feddyn has a server rule of its own and can't be combined with {parsed.server}. "
            "Leave one of them out."
        )
    return parsed


def parse_attack(text: str) -> float:
    """An attack as a factor on the attacker's update: nan, -1 (sign-flip) or the S of scale:S."""
    kind, _, value = text.partition(":")
    if text == "nan":
        return math.nan
    if text == "sign-flip":
        return -1.0
    try:
        factor = float(value)
    except ValueError:
        factor = math.nan
    if kind != "scale" or not math.isfinite(factor):
        raise FedSeqError(f"unknown attack '{text}'. Valid: nan, sign-flip, scale:FACTOR (e.g. scale:10).")
    return factor
