"""The algorithms and how their names compose. `build` turns a resolved config into an algorithm."""

from collections.abc import Callable

from fedseq.algorithms.base import FEDAVG, Algorithm, Hop, Setting, State
from fedseq.algorithms.centralized import centralized
from fedseq.algorithms.feddyn import feddyn
from fedseq.algorithms.fedprox import fedprox
from fedseq.algorithms.fedseq import fedseq, fedseqinter
from fedseq.algorithms.robust import median, trimmed_mean
from fedseq.algorithms.scaffold import scaffold
from fedseq.algorithms.server import fairavg, fedadam, fedavgm, fedyogi
from fedseq.config import Config, known
from fedseq.names import parse_algorithm


def fedavg() -> Algorithm:
    """FedAvg (McMahan et al. 2017), the neutral record."""
    return FEDAVG


LOCAL_RULES: dict[str, Callable[[Config], Algorithm]] = {
    "": lambda config: fedavg(),
    "fedavg": lambda config: fedavg(),
    "fedprox": lambda config: fedprox(known(config.mu)),
    "scaffold": lambda config: scaffold(config.scaffold_option),
    "feddyn": lambda config: feddyn(known(config.alpha_dyn), config.feddyn_official),
}
SERVER_RULES: dict[str, Callable[[Algorithm, Config], Algorithm]] = {
    "": lambda inner, config: inner,
    "fairavg": lambda inner, config: fairavg(inner),
    "median": lambda inner, config: median(inner),
    "trimmed-mean": lambda inner, config: trimmed_mean(inner),
    "fedavgm": lambda inner, config: fedavgm(inner, known(config.server_lr), config.server_momentum),
    "fedadam": lambda inner, config: fedadam(inner, known(config.server_lr), config.server_momentum),
    "fedyogi": lambda inner, config: fedyogi(inner, known(config.server_lr), config.server_momentum),
}
TOPOLOGIES: dict[str, Callable[[Algorithm, Config], Algorithm]] = {
    "": lambda inner, config: inner,
    "fedseq": lambda inner, config: fedseq(inner),
    "fedseqinter": lambda inner, config: fedseqinter(inner, config.merge_every),
}


def build(config: Config) -> Algorithm:
    if config.algorithm == "centralized":
        return centralized()
    name = parse_algorithm(config.algorithm)
    return TOPOLOGIES[name.topology](SERVER_RULES[name.server](LOCAL_RULES[name.local](config), config), config)


__all__ = [
    "Algorithm", "Hop", "Setting", "State", "build", "centralized", "fairavg", "fedadam", "fedavg", "fedavgm", "feddyn",
    "fedprox", "fedseq", "fedseqinter", "fedyogi", "median", "scaffold",
    "trimmed_mean",
]  # fmt: skip
