"""The runs that options apply to, and defaults that follow from other options.

Config's fields are filled in order. A default may look at all options that were given, and at the fields before its
own.
"""

import math
import sys
from typing import TYPE_CHECKING

from fedseq.basics.processes import usable_cores
from fedseq.options.datasets import CATALOG, OWN, has_columns, is_table, may_lack_a_test_set, with_columns
from fedseq.options.grammar import authors_parts
from fedseq.options.option import Condition
from fedseq.options.tables import ENGINES, METHODS, PARTITIONS, default_metric

if TYPE_CHECKING:
    from fedseq.options.config import Config

BY_COLUMN = "natural"  # the partition of data whose clients a column tells apart


def partition_of(alpha: float) -> str:
    return "shards" if alpha == 0 else "iid" if math.isinf(alpha) else "dirichlet"


def default_alpha(run: "Config") -> float:
    """The named data sets are benchmarks of clients that differ; a user's own file is not made so unasked."""
    mixed = run.partition == "iid" or (run.partition is None and ":" in run.dataset)
    return math.inf if mixed else 0.0


def default_partition(run: "Config") -> str | None:
    if run.dataset == OWN:
        return None
    if run.real_clients:
        return BY_COLUMN
    return "iid" if run.centralized else partition_of(run.alpha)


def default_engine(run: "Config") -> str:
    """Worker processes where they are possible (Linux) and useful (several cores), or asked for."""
    cores = usable_cores() if sys.platform.startswith("linux") and run.device == "cpu" else 1
    return "processes" if cores > 1 or run.workers else "serial"


def default_metric_of(run: "Config") -> str | None:
    return default_metric(run.approximator if run.uses_estimates else None, run.grouping)


def default_update_check(run: "Config") -> str:
    return "size" if run.attack is not None and not run.private_rounds else "none"


def _dealt(run: "Config") -> bool:
    return not run.centralized and run.dataset != OWN and not run.real_clients


def _asks_alpha(run: "Config") -> bool:
    row = PARTITIONS.get(run.partition or "")
    return _dealt(run) and ((row is not None and row.dirichlet) or run.partition == partition_of(run.alpha))


def _no_test_set(run: "Config") -> bool:
    return may_lack_a_test_set(run.dataset)


def _merged(run: "Config") -> bool:
    return run.parts.topology == "fedseq"


def _with_workers(run: "Config") -> bool:
    engine = ENGINES.get(run.engine)  # that of a federation is in no table: nobody chooses it
    return engine is not None and engine.workers


def _confidence(run: "Config") -> bool:
    return run.uses_estimates and run.approximator == "confidence"


# fmt: off
FEDERATED = Condition("federated algorithms", lambda run: not run.centralized)
COUNTED = Condition("federated algorithms whose clients are not told apart by --clients-by",
                    lambda run: not run.centralized and not run.real_clients)
DEALT = Condition("data whose clients are not told apart by --clients-by", _dealt)
COLUMNS = Condition(with_columns(), lambda run: has_columns(run.dataset))
A_TABLE = Condition("csv: and parquet:", lambda run: is_table(run.dataset))
NO_TEST_SET = Condition("data without a test set of its own", _no_test_set)
HELD_OUT = Condition("--holdout", lambda run: _no_test_set(run) and run.holdout is not None)
DIRICHLET = Condition("--partition dirichlet, or no --partition", _asks_alpha)
TESTED_CLIENTS = Condition("--clients-by, or test_clients in Python",
                           lambda run: run.real_clients or run.dataset == OWN)
SUPERCLIENTS = Condition("fedseq and fedseqinter", lambda run: run.parts.superclients)
MERGED = Condition("fedseq", _merged)
JOINED = Condition("--superclients-per-chain 2 or more", lambda run: _merged(run) and run.superclients_per_chain > 1)
ESTIMATES = Condition("fedseq and fedseqinter, with every --grouping but random", lambda run: run.uses_estimates)
# The paper's test sets are the same for every algorithm, so that all are compared on the same pictures.
EXEMPLARS = Condition("named data sets; on your own data, --approximator confidence or --update-check exemplars",
                      lambda run: run.dataset in CATALOG or _confidence(run) or run.checks_exemplars)
CONFIDENCE = Condition("--approximator confidence", _confidence)
A_GROUP_ESTIMATE = Condition(
    "--grouping greedy, or exchange with a metric",
    lambda run: run.uses_estimates and run.grouping_metric is not None and METHODS.row(run.grouping).compares_groups)
TOWARDS_THE_END = Condition("--lr-scheduler linear or cosine", lambda run: run.lr_scheduler in ("linear", "cosine"))
EXPONENTIAL = Condition("--lr-scheduler exponential", lambda run: run.lr_scheduler == "exponential")
CHECKED = Condition("--update-check size or exemplars", lambda run: run.gate)
# Each part of the paper's method that its authors' code does differently, and the runs that have it.
AUTHORS = {
    "partition": Condition("--partition dirichlet", lambda run: run.partition == "dirichlet" and _dealt(run)),
    "confidence": CONFIDENCE,
    "feddyn": Condition("--algorithm feddyn", lambda run: run.parts.local == "feddyn"),
}
AUTHORS_PARTS_USED = Condition(
    ", ".join(condition.words for condition in AUTHORS.values()),
    lambda run: any(AUTHORS[part].holds(run) for part in authors_parts(run.authors_code)))
AN_ATTACK = Condition("--attack", lambda run: run.attack is not None)
PRIVATE = Condition("--dp-clip-norm", lambda run: run.private)
NO_PRIVATE_ROUNDS = Condition(
    "runs without --dp-mechanism round, where one client's update would decide about those of others",
    lambda run: not run.private_rounds)
WORKERS = Condition("--engine processes or ray", _with_workers)
RAY = Condition("--engine ray", lambda run: run.engine == "ray")
