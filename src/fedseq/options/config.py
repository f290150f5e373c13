"""Every option of a run: one frozen record, in which an option carries its default, range, meaning, use and role.

A `Config` is always complete: `resolve` makes it from the options that were given, fills in what follows from the
data set and the algorithm, and refuses what makes no sense, or would have no effect. Hyper-parameters of rules are
options too; they stand in the rows of tables.py, and in `Config.rules`.
"""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedseq.options import privacy_plan as private
from fedseq.options.conditions import (
    A_GATE,
    A_GROUP_ESTIMATE,
    A_SCHEDULE,
    A_TABLE,
    AN_ATTACK,
    COLUMNS,
    CONFIDENCE,
    COUNTED,
    DEALT,
    DIRICHLET,
    ESTIMATES,
    EXEMPLARS,
    FEDERATED,
    HELD_OUT,
    JOINED,
    MERGED,
    NO_TEST_SET,
    PLACE,
    RAY,
    SUPERCLIENTS,
    TESTED_CLIENTS,
    WORKERS,
    algorithm_of,
    default_alpha,
    default_engine,
    default_metric_of,
    default_partition,
    facts,
    is_central,
)
from fedseq.options.datasets import CATALOG, FILE_SOURCES
from fedseq.options.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    BELOW_1,
    FROM_0_TO_1,
    POSITIVE,
    SHARE,
    Option,
    Range,
    Role,
    Use,
    flag,
    option,
    options_of,
)
from fedseq.options.tables import (
    APPROXIMATORS,
    AUGMENTATIONS,
    AVERAGES,
    ENGINES,
    LOCAL_RULES,
    METHODS,
    METRICS,
    MODELS,
    PARTITIONS,
    SERVER_RULES,
    TOPOLOGIES,
    TRACKERS,
    Parameter,
)
from fedseq.simulation.attacks import described


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's options, all settled: those that were given, and the defaults that follow from them."""

    dataset: str = option("data", "digits", f"{', '.join(CATALOG)}, {', '.join(FILE_SOURCES)}")
    algorithm: str = option(
        "algorithm", "fedseq", "[fedseq|fedseqinter][+local rule][+server rule][+average], or centralized"
    )
    data_dir: str | None = option("data", None, "folder that holds the data set's files", **PLACE)
    clients_by: str | None = option(
        "data", lambda options: facts(options).clients_by, "column that tells whose each example is", use=COLUMNS,
        usual="the data set's, or none: examples are dealt",
    )  # fmt: skip
    label_column: str | None = option("data", None, "column with the classes", use=A_TABLE, usual="label")
    holdout: float | None = option(
        "data", lambda options: facts(options).holdout, "share that is held out for the test", range=SHARE,
        use=NO_TEST_SET, usual="tables 0.2, smartwatch 0.3",
    )  # fmt: skip
    holdout_by: str = option(
        "data", lambda options: facts(options).holdout_by, "what is held out: examples of each client, whole clients, "
        "or whole values of a column, by its name", use=HELD_OUT, usual="examples; smartwatch: person",
    )  # fmt: skip
    num_clients: int = option(
        "data", lambda options: 1 if is_central(options) else facts(options).num_clients,
        "K: clients the training data is dealt to", range=AT_LEAST_1, use=COUNTED, usual="the data set's",
    )  # fmt: skip
    alpha: float = option(
        "data", default_alpha, "Dirichlet concentration: 0 = one class per client, inf = i.i.d.",
        range=Range(lambda value: value >= 0, "0 or more (inf is i.i.d.)"), use=DIRICHLET, usual="0",
    )  # fmt: skip
    partition: str | None = option(
        "data", default_partition, "how the data is dealt", choices=PARTITIONS, use=DEALT, usual="as alpha asks"
    )
    exemplars: int = option(
        "data", 10, "public examples per class taken out of the test set, at most a tenth of it", range=AT_LEAST_0,
        use=EXEMPLARS,
    )  # fmt: skip
    augment: str = option(
        "data", lambda options: facts(options).augment, "augmentation of training batches", choices=AUGMENTATIONS,
        usual="the data set's",
    )  # fmt: skip

    model: str | None = option(
        "model", lambda options: facts(options).model, f"{', '.join(MODELS)}, or your own as package.module:Class, "
        "called with (shape, num_classes), (num_classes) or nothing",
        open=None, usual="the data set's",
    )  # fmt: skip
    train: str = option("model", "all", "part that is trained and sent: all, head (the last linear layer) or lora:RANK")
    init_weights: str | None = option("model", None, "start from this .safetensors file instead of a random model")

    rounds: int = option(
        "algorithm",
        lambda options: facts(options).centralized_epochs if is_central(options) else facts(options).rounds,
        "T: rounds to run", range=AT_LEAST_1, role=Role.EXTENT, usual="the data set's",
    )  # fmt: skip
    fraction: float = option(
        "algorithm", lambda options: 1.0 if is_central(options) else 0.2,
        "C: share of the clients or superclients drawn per round", range=SHARE, use=FEDERATED, usual="0.2",
    )  # fmt: skip
    client_epochs: int = option(
        "algorithm", 1, "E: epochs a client trains at each visit", range=AT_LEAST_1, use=FEDERATED
    )
    superclient_epochs: int = option(
        "algorithm", 1, "E_S: passes over a superclient's clients per round", range=AT_LEAST_1, use=SUPERCLIENTS
    )
    joined: int = option(
        "algorithm", 1, "drawn superclients that are trained as one, in one longer chain", range=AT_LEAST_1, use=MERGED
    )
    joined_rounds: int | None = option(
        "algorithm", None, "first rounds, in which superclients are joined", range=AT_LEAST_0, use=JOINED, usual="all"
    )
    rules: tuple[tuple[str, Any], ...] = ()  # hyper-parameters of the algorithm's rules: (name, value)
    batch_size: int = option(
        "local training", 64, "examples per SGD step; the short last batch is trained on", range=AT_LEAST_1
    )
    lr: float = option(
        "local training", lambda options: facts(options).lr, "learning rate", range=POSITIVE, usual="the data set's"
    )
    lr_schedule: str = option(
        "local training", lambda options: "cosine" if is_central(options) else "constant",
        "how the rate falls over the rounds", choices=("constant", "cosine", "linear"),
        usual="constant; centralized: cosine",
    )  # fmt: skip
    lr_final: float = option(
        "local training", 0.0, "share of the learning rate that is left at the end of the rounds", range=FROM_0_TO_1,
        use=A_SCHEDULE,
    )  # fmt: skip
    warmup_rounds: int = option(
        "local training", 0, "first rounds, in which the learning rate rises evenly to its value", range=AT_LEAST_0
    )
    lr_decay: float = option("local training", 1.0, "factor on the learning rate after every round", range=SHARE)
    momentum: float = option(
        "local training", lambda options: 0.9 if is_central(options) else 0.0,
        "momentum of local SGD; starts anew at each visit", range=BELOW_1, usual="0; centralized: 0.9",
    )  # fmt: skip
    weight_decay: float = option("local training", 4e-4, "L2 penalty on the parameters", range=AT_LEAST_0)
    clip_norm: float | None = option("local training", None, "scale longer gradients to this norm", range=POSITIVE)
    kernels: str = option(
        "local training", "auto", "who convolves: our kernels, two to three times faster, or PyTorch",
        choices=("auto", "fast", "torch"), open="auto", usual="auto: fast where the model and the machine can",
    )  # fmt: skip
    precision: str = option(
        "local training", "float32", "what layers compute in; weights stay float32", choices=("float32", "bfloat16")
    )
    method: str = option("superclients", "greedy", "phi: how clients are grouped", choices=METHODS, use=SUPERCLIENTS)
    approximator: str = option(
        "superclients", "confidence", "psi: estimate of a client's classes", choices=APPROXIMATORS, use=ESTIMATES
    )
    metric: str | None = option(
        "superclients", default_metric_of, "tau: how complementary a client is", choices=METRICS, use=ESTIMATES,
        usual="kl; classifiers: cosine; exchange: none",
    )  # fmt: skip
    pretrain_epochs: int = option(
        "superclients", 10, "e: epochs of pre-training before clients are estimated", range=AT_LEAST_1, use=ESTIMATES
    )
    min_samples: int | None = option(
        "superclients", None, "examples at which a group closes", range=AT_LEAST_1, use=SUPERCLIENTS,
        usual="8*floor(n/K)",
    )  # fmt: skip
    max_clients: int = option(
        "superclients", 11, "K_S,max: clients at which a group closes", range=AT_LEAST_1, use=SUPERCLIENTS
    )
    confidence: str = option(
        "superclients", "paper", "variant of the confidence vector", choices=("paper", "official"), use=CONFIDENCE
    )
    estimate: str = option(
        "superclients", "mean", "variant of a group's estimate", choices=("mean", "half"), use=A_GROUP_ESTIMATE
    )
    dropout: float = option(
        "failures", 0.0, "probability that a hop fails because its client drops out", range=FROM_0_TO_1
    )
    client_speed: float = option("failures", 10.0, "SGD steps a second of the median simulated client", range=POSITIVE)
    speed_spread: float = option(
        "failures", 0.5, "sigma of the logarithm of the simulated clients' speeds",
        range=Range(lambda value: 0 <= value <= 5, "from 0 to 5"),
    )  # fmt: skip
    bandwidth: float = option("failures", 1e6, "bytes a second of a simulated client, each way", range=POSITIVE)
    deadline: float | None = option("failures", None, "simulated seconds after which a hop is given up", range=POSITIVE)
    attack: str | None = option("failures", None, f"what attackers do: {described()}", simulated=True)
    attackers: float = option(
        "failures", 0.1, "share of the clients that attack", range=FROM_0_TO_1, use=AN_ATTACK, simulated=True
    )
    gate: bool = option(
        "failures", private.default_gate, "reject updates that are not finite or too large", use=private.UNLESS_ROUNDS,
        usual="on with --attack",
    )  # fmt: skip
    gate_factor: float = option(
        "failures", 20.0, "too large is more than this many times the median accepted change",
        range=Range(lambda value: value > 1, "greater than 1"), use=A_GATE,
    )  # fmt: skip
    gate_check: str = option(
        "failures", "size", "judge updates by size, or also by exemplars", choices=("size", "exemplars"), use=A_GATE
    )
    dp_clip: float | None = option("privacy", **private.CLIP)
    dp_mechanism: str = option("privacy", **private.MECHANISM)
    dp_source: str = option("privacy", **private.SOURCE)
    dp_delta: float = option("privacy", **private.DELTA)
    dp_epsilon: float | None = option("privacy", **private.EPSILON)
    dp_noise: float | None = option("privacy", **private.NOISE)
    seed: int = option("run", 0, "every random draw follows from it", range=AT_LEAST_0)
    eval_every: int = option("run", 1, "rounds between evaluations; the last round always is one", range=AT_LEAST_1)
    evaluate_clients: int | None = option(
        "run", None, "clients on whose own held-out examples the model is evaluated too; drawn if there are more",
        range=AT_LEAST_1, use=TESTED_CLIENTS, simulated=True,
    )  # fmt: skip
    until_accuracy: float | None = option(
        "run", None, "stop at the first evaluation with this accuracy (0..1)", range=SHARE, role=Role.EXTENT
    )
    patience: int | None = option(
        "run", None, "rounds without a better evaluation after which to stop", range=AT_LEAST_1, role=Role.EXTENT
    )
    checkpoint_every: int | None = option(
        "run", None, "rounds between checkpoints", range=AT_LEAST_1, usual="one a minute", **PLACE
    )
    memory_limit: float = option(
        "run", 4.0, "GiB of clients' memory kept in RAM; the rest lies in files",
        range=Range(lambda value: value >= 0, "0 or more"), **PLACE,
    )  # fmt: skip
    track: str = option("run", "none", f"{', '.join(TRACKERS)}, or several as wandb+mlflow", **PLACE)
    device: str = option("run", "cpu", "cpu, cuda or mps", **PLACE)
    workers: int | None = option(
        "run", None, "worker processes", range=AT_LEAST_1, use=WORKERS, simulated=True, usual="one per core", **PLACE
    )
    ray_address: str | None = option(
        "run", None, "a running Ray cluster", use=RAY, simulated=True, usual="one is started", **PLACE
    )
    engine: str = option(
        "run", default_engine, "where clients are computed", choices=ENGINES, simulated=True,
        usual="processes where they help", **PLACE,
    )  # fmt: skip

    @property
    def home(self) -> str:
        """Where the server's model and everybody's data lie; worker processes take to a GPU what they compute there."""
        return self.device if self.engine == "serial" else "cpu"

    def options(self) -> dict[str, Any]:
        """Everything that this run uses, by name, hyper-parameters of rules included."""
        used = {name: getattr(self, name) for name, found in OPTIONS.items() if found.use.holds(self)}
        return {**used, **dict(self.rules)}


OPTIONS = options_of(Config)


def rule_options() -> Iterator[Option]:
    """An option for each hyper-parameter of a named rule; rules that share one name it alike."""
    by_name: dict[str, list[tuple[str, Parameter]]] = {}
    for table in (TOPOLOGIES, LOCAL_RULES, SERVER_RULES, AVERAGES):
        for rule, row in table.items():
            for parameter in row.parameters:
                by_name.setdefault(parameter.name, []).append((rule, parameter))
    for name, found in by_name.items():
        yield _rule_option(name, [rule for rule, _ in found], [parameter for _, parameter in found])


def _rule_option(name: str, rules: list[str], parameters: list[Parameter]) -> Option:
    first = parameters[0]
    by_rule = [f"{rule} {parameter.default}" for rule, parameter in zip(rules, parameters, strict=True)]
    usual = f"{first.default}" if len({parameter.default for parameter in parameters}) == 1 else ", ".join(by_rule)
    under = [f"under {topology} {value}" for topology, value in first.under.items()]
    return Option(
        name,
        (first.kind, types.NoneType) if first.default is None else (first.kind,),
        "algorithm",
        partial(_rule_default, name),
        first.help,
        first.range,
        use=Use(", ".join(rules), lambda options: name in algorithm_of(options).parameters()),
        usual="" if first.default is None else "; ".join([usual, *under]),
    )


def _rule_default(name: str, options: Any) -> Any:
    algorithm = algorithm_of(options)
    parameter = algorithm.parameters()[name]
    return parameter.under.get(algorithm.topology, parameter.default)


def all_options() -> dict[str, Option]:
    """Those of every run, and those of its rules behind them; made once for the rules that there are."""
    rows = [row for table in (TOPOLOGIES, LOCAL_RULES, SERVER_RULES, AVERAGES) for row in table.items()]
    if _made.rows != rows:
        _made.rows, _made.options = rows, {**OPTIONS, **{found.name: found for found in rule_options()}}
    return dict(_made.options)


_made = types.SimpleNamespace(rows=[], options={})


def role_of(name: str) -> Role:
    found = all_options().get(name)
    return found.role if found else Role.RESULT  # a hyper-parameter of a user's own rule


def differences_in_words(before: Config, now: Config) -> str:
    """As flags with their old and new values; empty where there are none."""
    why = {"rounds": " (the learning rate falls towards the last)"}
    return ", ".join(f"{flag(name)} {old} -> {new}{why.get(name, '')}" for name, old, new in differences(before, now))


def differences(before: Config, now: Config) -> list[tuple[str, Any, Any]]:
    """The options by which something else would come out of one than of the other, and their values."""
    old, new = before.options(), now.options()
    left_open = {name for name, found in OPTIONS.items() if getattr(now, name) == found.open}
    decisive = {"rounds"} if before.lr_schedule != "constant" else set()  # the rate falls towards the last
    if (before.patience is None) != (now.patience is None):
        decisive.add("patience")  # the best model so far was not kept, or would not be any more
    return [
        (name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
        and (role_of(name) is Role.RESULT or name in decisive)
        and name not in left_open
    ]
