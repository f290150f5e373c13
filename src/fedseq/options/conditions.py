"""Which runs use an option, and defaults that follow from other options.

Each function looks at the options of a run, some of which may not be filled in yet: defaults are computed in the order
of Config's fields, and may look at what was given for any, and at the values of those before.
"""

import math
import sys
from typing import Any

from fedseq.basics.cores import usable_cores
from fedseq.basics.errors import FedSeqError
from fedseq.options.datasets import (
    CATALOG,
    OWN,
    DatasetFacts,
    FileDefaults,
    facts_of,
    has_columns,
    is_table,
    may_lack_a_test_set,
    with_columns,
)
from fedseq.options.grammar import CENTRALIZED, AlgorithmName, parse_algorithm
from fedseq.options.option import Role, Use
from fedseq.options.tables import METHODS, TOPOLOGIES, default_metric


def algorithm_of(options: Any) -> AlgorithmName:
    """The parsed name. Of an Algorithm object of the user's own only the topology can be told by its name."""
    try:
        return parse_algorithm(options.algorithm)
    except FedSeqError:
        first = options.algorithm.split("+")[0]
        return AlgorithmName(topology=first if first in TOPOLOGIES else "")


def facts(options: Any) -> DatasetFacts | FileDefaults:
    return facts_of(options.dataset)


def is_central(options: Any) -> bool:
    return bool(options.algorithm == CENTRALIZED)


def is_natural(options: Any) -> bool:
    """Clients exist, and are not made by dealing."""
    return options.clients_by is not None and has_columns(options.dataset)


def spread_of(options: Any) -> str:
    """How classes are spread over clients, in a word: the column that tells clients apart, or alpha."""
    return f"by {options.clients_by}" if is_natural(options) else f"{options.alpha:g}"


def uses_estimates(options: Any) -> bool:
    return algorithm_of(options).superclients and METHODS.row(options.method).estimates


def partition_of(alpha: float) -> str:
    return "shards" if alpha == 0 else "iid" if math.isinf(alpha) else "hsu"


def default_alpha(options: Any) -> float:
    return math.inf if options.partition == "iid" else 0.0


def default_partition(options: Any) -> str | None:
    if options.dataset == OWN:
        return None
    if is_natural(options):
        return NATURAL
    return "iid" if is_central(options) else partition_of(options.alpha)


def default_engine(options: Any) -> str:
    """Worker processes where they can be had (Linux) and can help (several cores), or are asked for."""
    cores = usable_cores() if sys.platform.startswith("linux") and options.device == "cpu" else 1
    return "processes" if cores > 1 or options.workers else "serial"


def watches_exemplars(options: Any) -> bool:
    return bool(options.gate and options.gate_check == "exemplars")


def default_metric_of(options: Any) -> str | None:
    return default_metric(options.approximator if uses_estimates(options) else None, options.method)


FEDERATED = Use("federated algorithms", lambda options: not is_central(options))
NATURAL = "natural"  # the partition of clients that exist
COUNTED = Use(
    "federated algorithms whose clients are not told apart by --clients-by",
    lambda options: not is_central(options) and not is_natural(options),
)
DEALT = Use(
    "data that is dealt to clients",
    lambda options: not is_central(options) and options.dataset != OWN and not is_natural(options),
)
COLUMNS = Use(with_columns(), lambda options: has_columns(options.dataset))
A_TABLE = Use("csv: and parquet:", lambda options: is_table(options.dataset))
NO_TEST_SET = Use("data without a test set of its own", lambda options: may_lack_a_test_set(options.dataset))
HELD_OUT = Use("--holdout", lambda options: NO_TEST_SET.holds(options) and options.holdout is not None)
DIRICHLET = Use(
    "--partition hsu or official, or none",
    lambda options: (
        DEALT.holds(options)
        and (options.partition in ("hsu", "official") or options.partition == partition_of(options.alpha))
    ),
)
TESTED_CLIENTS = Use(
    "--clients-by, or test_clients in Python", lambda options: is_natural(options) or options.dataset == OWN
)
SUPERCLIENTS = Use("fedseq and fedseqinter", lambda options: algorithm_of(options).superclients)
MERGED = Use("fedseq", lambda options: algorithm_of(options).topology == "fedseq")
JOINED = Use("--joined 2 or more", lambda options: MERGED.holds(options) and options.joined > 1)
ESTIMATES = Use("superclients of estimated clients, by any --method but random", uses_estimates)
CONFIDENCE = Use(
    "--approximator confidence", lambda options: uses_estimates(options) and options.approximator == "confidence"
)
# The paper's test sets are the same for every algorithm, so that all are compared on the same pictures.
EXEMPLARS = Use(
    "named data sets; on your own, --approximator confidence or --gate-check exemplars",
    lambda options: options.dataset in CATALOG or CONFIDENCE.holds(options) or watches_exemplars(options),
)
A_GROUP_ESTIMATE = Use(
    "--method greedy, or exchange with a metric",
    lambda options: uses_estimates(options) and options.metric is not None and options.method != "kmeans",
)
A_SCHEDULE = Use("--lr-schedule cosine or linear", lambda options: options.lr_schedule != "constant")
A_GATE = Use("--gate", lambda options: options.gate)
AN_ATTACK = Use("--attack", lambda options: options.attack is not None)
WORKERS = Use("--engine processes or ray", lambda options: options.engine in ("processes", "ray"))
RAY = Use("--engine ray", lambda options: options.engine == "ray")
PLACE = {"role": Role.PLACE}
