"""Every option of a run: one frozen record with every default and every check.

A field that is None takes the default of its data set (catalog.py) or of its algorithm in `resolve`; config.yaml in a
run folder shows what was resolved. The command line makes a flag of each field, a YAML file may hold any of them.
"""

import dataclasses
import math
import os
import sys
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedseq.catalog import CATALOG, FILE_DEFAULTS, check_dataset_name
from fedseq.errors import FedSeqError, unknown
from fedseq.names import (
    APPROXIMATORS,
    AUGMENTATIONS,
    ENGINES,
    METHODS,
    METRICS,
    MODELS,
    PARTITIONS,
    SCHEDULES,
    AlgorithmName,
    parse_algorithm,
    parse_attack,
)


def option(section: str, default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"section": section, "help": help, "choices": choices})


@dataclass(frozen=True)
class Config:
    dataset: str = option("data", "digits", "digits, fashion-mnist, cifar10, cifar100, npz:FILE or folder:DIR")
    data_dir: str | None = option("data", None, "folder that holds the data set's files")
    num_clients: int | None = option("data", None, "K: clients the training data is dealt to")
    alpha: float = option("data", 0.0, "Dirichlet concentration: 0 = one class per client, inf = i.i.d.")
    partition: str | None = option("data", None, "how the data is dealt; by default as alpha asks", PARTITIONS)
    exemplars: int = option("data", 10, "public examples per class taken out of the test set, at most a tenth of it")
    augment: str | None = option("data", None, "augmentation of training batches", AUGMENTATIONS)

    model: str | None = option("model", None, f"{', '.join(MODELS)}, or your own as package.module:Class")
    init_weights: str | None = option("model", None, "start from this .safetensors file instead of a random model")

    algorithm: str = option("algorithm", "fedseq", "[fedseq|fedseqinter][+local rule][+server rule], or centralized")
    rounds: int | None = option("algorithm", None, "T: rounds to run")
    fraction: float = option("algorithm", 0.2, "C: share of the clients or superclients drawn per round")
    client_epochs: int = option("algorithm", 1, "E: epochs a client trains at each visit")
    superclient_epochs: int = option("algorithm", 1, "E_S: passes over a superclient's clients per round")
    merge_every: int | None = option("algorithm", None, "fedseqinter: rounds between merges; N_S by default")
    mu: float | None = option("algorithm", None, "fedprox: weight of the proximal term; 0 is FedAvg")
    alpha_dyn: float | None = option("algorithm", None, "feddyn: weight of its penalty")
    feddyn_official: bool = option("algorithm", False, "feddyn: leave out the linear term, as the authors' code does")
    scaffold_option: int = option("algorithm", 1, "scaffold: control variate by gradient (1) or by difference (2)")
    server_lr: float | None = option("algorithm", None, "fedavgm, fedadam, fedyogi: learning rate of the server")
    server_momentum: float = option("algorithm", 0.9, "fedavgm, fedadam, fedyogi: momentum of the server")

    batch_size: int = option("local training", 64, "examples per SGD step; the short last batch is trained on")
    lr: float | None = option("local training", None, "learning rate")
    lr_schedule: str | None = option("local training", None, "how the rate falls over the rounds", SCHEDULES)
    lr_decay: float = option("local training", 1.0, "factor on the learning rate after every round")
    momentum: float | None = option("local training", None, "momentum of local SGD; starts anew at each visit")
    weight_decay: float = option("local training", 4e-4, "L2 penalty on the parameters")
    clip_norm: float | None = option("local training", None, "scale longer gradients down to this norm")

    approximator: str = option("superclients", "confidence", "psi: estimate of a client's classes", APPROXIMATORS)
    metric: str | None = option("superclients", None, "tau: how complementary a client is; kl by default", METRICS)
    method: str = option("superclients", "greedy", "phi: how clients are grouped", METHODS)
    pretrain_epochs: int = option("superclients", 10, "e: epochs of pre-training before clients are estimated")
    min_samples: int | None = option("superclients", None, "examples at which a group closes; 8*floor(n/K) by default")
    max_clients: int = option("superclients", 11, "K_S,max: clients at which a group closes")
    confidence: str = option("superclients", "paper", "variant of the confidence vector", ("paper", "official"))
    estimate: str = option("superclients", "mean", "variant of a group's estimate", ("mean", "half"))

    dropout: float = option("failures", 0.0, "probability that a hop fails because its client drops out")
    client_speed: float = option("failures", 10.0, "SGD steps a second of the median simulated client")
    speed_spread: float = option("failures", 0.5, "sigma of the logarithm of the simulated clients' speeds")
    deadline: float | None = option("failures", None, "simulated seconds after which a hop is given up")
    gate: bool | None = option("failures", None, "reject updates that are not finite or too large; on with --attack")
    gate_factor: float = option("failures", 20.0, "too large is more than this many times the median accepted change")
    attack: str | None = option("failures", None, "what attackers send: nan, sign-flip or scale:FACTOR")
    attackers: float = option("failures", 0.1, "share of the clients that attack, with --attack")

    seed: int = option("run", 0, "every random draw follows from it")
    eval_every: int = option("run", 1, "rounds between evaluations; the last round is always evaluated")
    until_accuracy: float | None = option("run", None, "stop at the first evaluation with this accuracy (0..1)")
    checkpoint_every: int | None = option("run", None, "rounds between checkpoints; one a minute by default")
    memory_limit: float | None = option("run", 4.0, "GiB of clients' memory kept in RAM; the rest lies in files")
    engine: str | None = option("run", None, "where clients are computed", ENGINES)
    workers: int | None = option("run", None, "worker processes; one per core by default")
    ray_address: str | None = option("run", None, "a running Ray cluster, with --engine ray; by default one is started")
    device: str = option("run", "cpu", "cpu, cuda or mps")


# Options that may change when a run is continued: they do not touch what is computed up to a given round.
FREE_TO_CHANGE = {
    "rounds", "until_accuracy", "checkpoint_every", "memory_limit", "engine", "workers", "ray_address", "device",
    "data_dir",
}  # fmt: skip

_T = typing.TypeVar("_T")


def known(value: _T | None) -> _T:
    """An option of a resolved config, where it is not None any more."""
    assert value is not None, "the config is not resolved"
    return value


FIELDS: dict[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(Config)}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def sections() -> Iterable[str]:
    return dict.fromkeys(field.metadata["section"] for field in FIELDS.values())


def resolve(config: Config) -> Config:
    """The config with every default of its data set and algorithm filled in, and checked."""
    check(config)
    facts = CATALOG.get(config.dataset, FILE_DEFAULTS)
    name = parse_algorithm(config.algorithm)
    central = config.algorithm == "centralized"
    partition = config.partition or ("shards" if config.alpha == 0 else "iid" if math.isinf(config.alpha) else "hsu")
    found: dict[str, Any] = {
        "num_clients": 1 if central else facts.num_clients,
        "partition": partition,
        "augment": facts.augment,
        "model": facts.model,
        "rounds": facts.centralized_epochs if central else facts.rounds,
        "lr": facts.lr,
        "lr_schedule": "cosine" if central else "constant",
        "momentum": 0.9 if central else 0.0,
        "gate": config.attack is not None,
        "engine": _default_engine(config.device),
        **_algorithm_defaults(name),
    }
    missing = {key: value for key, value in found.items() if getattr(config, key) is None}
    if central:
        missing.update(num_clients=1, partition="iid", fraction=1.0, client_epochs=1)
    return dataclasses.replace(config, **missing)


def _default_engine(device: str) -> str:
    """Worker processes where they can be had (Linux) and can help (several cores, no accelerator)."""
    cores = len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else 1
    return "processes" if device == "cpu" and cores > 1 else "serial"


def _algorithm_defaults(name: AlgorithmName) -> dict[str, Any]:
    """The paper's values; they differ under FedSeqInter."""
    found: dict[str, Any] = {}
    inter = name.topology == "fedseqinter"
    if name.local == "fedprox":
        found["mu"] = 1.0 if inter else 0.01
    if name.local == "feddyn":
        found["alpha_dyn"] = 1.0 if inter else 0.1
    if name.server == "fedavgm":
        found["server_lr"] = 1.0
    if name.server in ("fedadam", "fedyogi"):
        found["server_lr"] = 0.01
    return found


def check(config: Config) -> None:
    """Refuse what can't be run, before any work starts."""
    check_dataset_name(config.dataset)
    for name, field in FIELDS.items():
        value, choices = getattr(config, name), field.metadata["choices"]
        if choices and value is not None and value not in choices:
            raise unknown(name.replace("_", " "), value, choices)
    for name, (holds, range_) in _RANGES.items():
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise FedSeqError(f"{flag(name)} must be {range_}, not {value}.")
    if parse_algorithm(config.algorithm).local == "scaffold" and config.scaffold_option == 2 and config.momentum:
        raise FedSeqError("scaffold option 2 needs plain SGD. Set --momentum 0 or use --scaffold-option 1.")
    if config.attack is not None:
        parse_attack(config.attack)
    if config.ray_address is not None and config.engine != "ray":
        raise FedSeqError("--ray-address is for --engine ray. Give both, or leave the address out.")
    if config.device.split(":")[0] not in ("cpu", "cuda", "mps"):
        raise unknown("device", config.device, ("cpu", "cuda", "mps"))
    if config.alpha == 0 and config.partition in ("hsu", "official"):
        raise FedSeqError(
            f"partition '{config.partition}' draws from Dir(alpha) and needs --alpha > 0; at 0 use shards."
        )


_POSITIVE = (lambda value: value > 0 and math.isfinite(value), "greater than 0")
_AT_LEAST_0 = (lambda value: value >= 0 and math.isfinite(value), "0 or more")
_AT_LEAST_1 = (lambda value: value >= 1, "1 or more")
_SHARE = (lambda value: 0 < value <= 1, "greater than 0 and at most 1")
_RANGES: dict[str, tuple[typing.Callable[[Any], bool], str]] = {
    "num_clients": _AT_LEAST_1,
    "alpha": (lambda value: value >= 0, "0 or more (inf is i.i.d.)"),
    "exemplars": _AT_LEAST_0,
    "rounds": _AT_LEAST_1,
    "fraction": _SHARE,
    "client_epochs": _AT_LEAST_1,
    "superclient_epochs": _AT_LEAST_1,
    "merge_every": _AT_LEAST_1,
    "mu": _AT_LEAST_0,
    "alpha_dyn": (_POSITIVE[0], "greater than 0: the server divides by it (a tiny value is not FedAvg)"),
    "scaffold_option": (lambda value: value in (1, 2), "1 or 2"),
    "server_lr": _POSITIVE,
    "server_momentum": (lambda value: 0 <= value < 1, "at least 0 and less than 1"),
    "batch_size": _AT_LEAST_1,
    "lr": _POSITIVE,
    "lr_decay": _SHARE,
    "momentum": (lambda value: 0 <= value < 1, "at least 0 and less than 1"),
    "weight_decay": _AT_LEAST_0,
    "clip_norm": _POSITIVE,
    "pretrain_epochs": _AT_LEAST_1,
    "min_samples": _AT_LEAST_1,
    "max_clients": _AT_LEAST_1,
    "dropout": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "client_speed": _POSITIVE,
    "speed_spread": (lambda value: 0 <= value <= 5, "from 0 to 5"),
    "deadline": _POSITIVE,
    "gate_factor": (lambda value: value > 1, "greater than 1"),
    "attackers": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "seed": _AT_LEAST_0,
    "eval_every": _AT_LEAST_1,
    "until_accuracy": _SHARE,
    "checkpoint_every": _AT_LEAST_1,
    "memory_limit": _AT_LEAST_0,
    "workers": _AT_LEAST_1,
}
