"""Every option of a run: one frozen record, in which each option carries its default, range, meaning and role.

A `Config` is always complete: `resolve` makes it from the options that were given, fills in what follows from the
data set and the algorithm, and refuses what makes no sense, or would have no effect. Hyper-parameters of rules are
options too; their rows are in tables.py, and their values in `Config.rules`.
"""

import math
import types
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedseq.options import conditions as on
from fedseq.options import tables
from fedseq.options.conditions import default_engine, default_metric_of, default_partition, default_update_check
from fedseq.options.datasets import CATALOG, FILE_SOURCES, DatasetFacts, FileDefaults, facts_of, has_columns
from fedseq.options.grammar import AUTHORS_PARTS, CENTRALIZED, AlgorithmName, authors_parts, known_parts
from fedseq.options.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    BELOW_1,
    FROM_0_TO_1,
    POSITIVE,
    SHARE,
    Condition,
    Option,
    Range,
    Role,
    flag,
    option,
    options_of,
)
from fedseq.options.privacy_plan import default_noise
from fedseq.simulation.attacks import described

PLACE = {"role": Role.PLACE}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's options, all decided: those that were given, and the defaults that follow from them."""

    # fmt: off
    dataset: str = option("data", "digits", f"{', '.join(CATALOG)}, {', '.join(FILE_SOURCES)}")
    algorithm: str = option(
        "algorithm", "fedseq", "[fedseq|fedseqinter][+local rule][+server rule][+average], or centralized")
    data_dir: str | None = option("data", None, "folder that holds the data set's files", **PLACE)
    clients_by: str | None = option(
        "data", lambda run: run.facts.clients_by, "column that says which client each example belongs to",
        when=on.COLUMNS, usual="the data set's, or none: examples are dealt to clients")
    label_column: str | None = option("data", None, "column with the classes", when=on.A_TABLE, usual="label")
    holdout: float | None = option(
        "data", lambda run: run.facts.holdout, "share of the data held out for the test", range=SHARE,
        when=on.NO_TEST_SET, usual="tables 0.2, smartwatch 0.3")
    holdout_by: str = option(
        "data", lambda run: run.facts.holdout_by, "what is held out: `examples` of each client, whole `clients`, "
        "or whole values of the column with this name", when=on.HELD_OUT, usual="examples; smartwatch: person")
    num_clients: int = option(
        "data", lambda run: 1 if run.centralized else run.facts.num_clients,
        "K: number of clients that share the training data", range=AT_LEAST_1, when=on.COUNTED,
        usual="the data set's")
    alpha: float = option(
        "data", lambda run: math.inf if run.partition == "iid" else 0.0,
        "Dirichlet concentration: 0 = one class per client, inf = i.i.d.",
        range=Range(lambda value: value >= 0, "0 or more (inf is i.i.d.)"), when=on.DIRICHLET, usual="0")
    partition: str | None = option(
        "data", default_partition, "how the data is dealt to clients", choices=tables.PARTITIONS, when=on.DEALT,
        usual="chosen by alpha")
    exemplars: int = option(
        "data", 10, "public examples per class, taken out of the test set (at most a tenth of it)", range=AT_LEAST_0,
        when=on.EXEMPLARS)
    augment: str = option(
        "data", lambda run: run.facts.augment, "augmentation of training batches", choices=tables.AUGMENTATIONS,
        usual="the data set's")

    model: str | None = option(
        "model", lambda run: run.facts.model, f"{', '.join(tables.MODELS)}, or your own as package.module:Class, "
        "called with (shape, num_classes), (num_classes) or nothing", undecided=None, usual="the data set's")
    trainable: str = option(
        "model", "all", "the part that is trained and sent: all, head (the last linear layer) or lora:RANK")
    init_weights: str | None = option(
        "model", None, "start from the weights in this .safetensors file instead of random ones")

    rounds: int = option(
        "algorithm", lambda run: run.facts.centralized_epochs if run.centralized else run.facts.rounds,
        "T: number of rounds", range=AT_LEAST_1, role=Role.EXTENT, usual="the data set's")
    fraction: float = option(
        "algorithm", lambda run: 1.0 if run.centralized else 0.2,
        "C: share of the clients or superclients that a round draws", range=SHARE, when=on.FEDERATED, usual="0.2")
    local_epochs: int = option(
        "algorithm", 1, "E: epochs that a client trains at each visit", range=AT_LEAST_1, when=on.FEDERATED)
    superclient_epochs: int = option(
        "algorithm", 1, "E_S: passes over a superclient's clients per round", range=AT_LEAST_1, when=on.SUPERCLIENTS)
    superclients_per_chain: int = option(
        "algorithm", 1, "number of drawn superclients joined into one longer chain", range=AT_LEAST_1, when=on.MERGED)
    long_chain_rounds: int | None = option(
        "algorithm", None, "join superclients in the first rounds only: in this many", range=AT_LEAST_0,
        when=on.JOINED, usual="all")
    authors_code: str | None = option(
        "algorithm", None, "parts done as in the code of the paper's authors, which differs from the paper: "
        f"{', '.join(AUTHORS_PARTS)}, or several as partition+feddyn", when=on.AUTHORS_PARTS_USED)
    rules: tuple[tuple[str, Any], ...] = ()  # hyper-parameters of the algorithm's rules: (name, value)
    batch_size: int = option(
        "local training", 64, "examples per SGD step; a client's last batch may be smaller", range=AT_LEAST_1)
    lr: float = option(
        "local training", lambda run: run.facts.lr, "learning rate", range=POSITIVE, usual="the data set's")
    lr_scheduler: str = option(
        "local training", lambda run: "cosine" if run.centralized else "constant",
        "how the learning rate changes over the rounds", choices=("constant", "linear", "cosine", "exponential"),
        usual="constant; centralized: cosine")
    lr_final: float = option(
        "local training", 0.0, "share of the learning rate that is left in the last round", range=FROM_0_TO_1,
        when=on.TOWARDS_THE_END)
    lr_decay: float = option(
        "local training", 0.99, "the learning rate is multiplied by this factor after every round", range=SHARE,
        when=on.EXPONENTIAL)
    warmup_rounds: int = option(
        "local training", 0, "raise the learning rate linearly over this many first rounds", range=AT_LEAST_0)
    momentum: float = option(
        "local training", lambda run: 0.9 if run.centralized else 0.0,
        "momentum of local SGD; it restarts at each visit", range=BELOW_1, usual="0; centralized: 0.9")
    weight_decay: float = option("local training", 4e-4, "L2 penalty on the parameters", range=AT_LEAST_0)
    max_grad_norm: float | None = option("local training", None, "clip gradients to this norm", range=POSITIVE)
    kernels: str = option(
        "local training", "auto", "convolution kernels: `fast` (ours, two to three times faster) or `torch`",
        choices=("auto", "fast", "torch"), undecided="auto", usual="auto: fast where the model and the machine can")
    precision: str = option(
        "local training", "float32", "number format in which layers compute; weights stay float32",
        choices=("float32", "bfloat16"))
    grouping: str = option(
        "superclients", "greedy", "phi: how clients are grouped", choices=tables.METHODS, when=on.SUPERCLIENTS)
    approximator: str = option(
        "superclients", "confidence", "psi: how a client's classes are estimated", choices=tables.APPROXIMATORS,
        when=on.ESTIMATES)
    grouping_metric: str | None = option(
        "superclients", default_metric_of, "tau: how a client's fit to a group is measured", choices=tables.METRICS,
        when=on.ESTIMATES, usual="kl; classifiers: cosine; exchange: none")
    pretrain_epochs: int = option(
        "superclients", 10, "e: epochs of pre-training before a client's classes are estimated", range=AT_LEAST_1,
        when=on.ESTIMATES)
    min_samples: int | None = option(
        "superclients", None, "a group is full with this many examples", range=AT_LEAST_1, when=on.SUPERCLIENTS,
        usual="8*floor(n/K)")
    max_clients: int = option(
        "superclients", 11, "K_S,max: a group is full with this many clients", range=AT_LEAST_1,
        when=on.SUPERCLIENTS)
    group_estimate: str = option(
        "superclients", "mean", "a group's estimate: mean weighted by examples, or the paper's running half-half "
        "average", choices=("mean", "half"), when=on.A_GROUP_ESTIMATE)
    client_dropout: float = option(
        "failures", 0.0, "probability that a client drops out at a visit", range=FROM_0_TO_1)
    client_speed: float = option(
        "failures", 10.0, "SGD steps per second of the median simulated client", range=POSITIVE)
    speed_spread: float = option(
        "failures", 0.5, "sigma of the logarithm of the simulated clients' speeds",
        range=Range(lambda value: 0 <= value <= 5, "from 0 to 5"))
    bandwidth: float = option(
        "failures", 1e6, "bytes per second that a simulated client sends or receives", range=POSITIVE)
    deadline: float | None = option(
        "failures", None, "give up on a client's visit after this many simulated seconds", range=POSITIVE)
    attack: str | None = option("failures", None, f"what attackers do: {described()}", simulated=True)
    attacker_fraction: float = option(
        "failures", 0.1, "share of the clients that attack", range=FROM_0_TO_1, when=on.AN_ATTACK, simulated=True)
    update_check: str = option(
        "failures", default_update_check, "which updates of clients are rejected: none; by size, those that are not "
        "finite or far larger than others; by exemplars, also those that spoil the accuracy on the public exemplars",
        choices=("none", "size", "exemplars"), when=on.NO_PRIVATE_ROUNDS, usual="none; with --attack: size")
    update_check_factor: float = option(
        "failures", 20.0, "an update is too large at this many times the median accepted one",
        range=Range(lambda value: value > 1, "greater than 1"), when=on.CHECKED)
    dp_clip_norm: float | None = option(
        "privacy", None, "C: clip the change that a client (or a chain) makes to this norm; with noise this gives "
        "differential privacy", range=Range(lambda value: value > 0, "greater than 0 (inf does not clip)"),
        when=on.FEDERATED)
    dp_mechanism: str = option(
        "privacy", "visit", "where noise is added: by each client at every visit, or by the server to the sum of a "
        "round's chains", choices=("visit", "round"), when=on.PRIVATE)
    dp_source: str = option(
        "privacy", "seed", "source of the noise: the run's seed, or the system's cryptographic generator",
        choices=("seed", "system"), when=on.PRIVATE, usual="seed; in a federation: system")
    dp_target_delta: float = option(
        "privacy", 1e-5, "probability that the bound epsilon may fail",
        range=Range(lambda value: 0 < value < 1, "greater than 0 and less than 1"), when=on.PRIVATE)
    dp_target_epsilon: float | None = option(
        "privacy", None, "privacy budget of the most visited client; a run never exceeds it", range=POSITIVE,
        when=on.PRIVATE)
    dp_noise_multiplier: float | None = option(
        "privacy", default_noise, "z: standard deviation of the noise, in units of --dp-clip-norm", range=AT_LEAST_0,
        when=on.PRIVATE, usual="what --dp-target-epsilon and --rounds allow", undecided=None)
    seed: int = option("run", 0, "seed of every random draw", range=AT_LEAST_0)
    eval_every: int = option(
        "run", 1, "evaluate every this many rounds, and after the last one", range=AT_LEAST_1)
    eval_clients: int | None = option(
        "run", None, "also evaluate on the held-out examples of this many clients, drawn if there are more",
        range=AT_LEAST_1, when=on.TESTED_CLIENTS, simulated=True)
    target_accuracy: float | None = option(
        "run", None, "stop at the first evaluation with this accuracy (0..1)", range=SHARE, role=Role.EXTENT)
    patience: int | None = option(
        "run", None, "stop after this many rounds without a better evaluation", range=AT_LEAST_1, role=Role.EXTENT)
    checkpoint_every: int | None = option(
        "run", None, "save a checkpoint every this many rounds", range=AT_LEAST_1, usual="one a minute", **PLACE)
    memory_limit: float = option(
        "run", 4.0, "GiB of clients' memory kept in RAM; the rest is kept in files",
        range=Range(lambda value: value >= 0, "0 or more"), **PLACE)
    track: str = option("run", "none", f"{', '.join(tables.TRACKERS)}, or several as wandb+mlflow", **PLACE)
    device: str = option("run", "cpu", "cpu, cuda or mps", **PLACE)
    workers: int | None = option(
        "run", None, "number of worker processes", range=AT_LEAST_1, when=on.WORKERS, simulated=True,
        usual="one per core", **PLACE)
    ray_address: str | None = option(
        "run", None, "address of a running Ray cluster", when=on.RAY, simulated=True, usual="one is started", **PLACE)
    engine: str = option(
        "run", default_engine, "where clients are computed", choices=tables.ENGINES, simulated=True,
        usual="processes where they help", **PLACE)
    # fmt: on

    @property
    def parts(self) -> AlgorithmName:
        return known_parts(self.algorithm)

    @property
    def facts(self) -> DatasetFacts | FileDefaults:
        """What is known about the data set before it is read."""
        return facts_of(self.dataset)

    @property
    def centralized(self) -> bool:
        return self.algorithm == CENTRALIZED

    @property
    def real_clients(self) -> bool:
        """True if a column of the data tells the clients apart, so that none are made by dealing."""
        return self.clients_by is not None and has_columns(self.dataset)

    @property
    def spread(self) -> str:
        """How classes are spread over clients, in a word: the column that tells clients apart, or alpha."""
        return f"by {self.clients_by}" if self.real_clients else f"{self.alpha:g}"

    @property
    def uses_estimates(self) -> bool:
        """True if superclients are formed by what is estimated of the clients' classes."""
        return self.parts.superclients and tables.METHODS.row(self.grouping).estimates

    @property
    def checks_exemplars(self) -> bool:
        return self.update_check == "exemplars"

    @property
    def gate(self) -> bool:
        """True if updates are checked."""
        return self.update_check != "none"

    def follows_authors(self, part: str) -> bool:
        """True if this part is to be done as in the code of the paper's authors."""
        return part in authors_parts(self.authors_code)

    @property
    def private(self) -> bool:
        return self.dp_clip_norm is not None

    @property
    def private_visits(self) -> bool:
        """True if every client clips and noises what it sends."""
        return self.private and self.dp_mechanism != "round"

    @property
    def private_rounds(self) -> bool:
        """True if the server clips the chains of a round and noises their sum."""
        return self.private and self.dp_mechanism == "round"

    @property
    def home(self) -> str:
        """The device of the server's model and of all data; worker processes copy to a GPU what they compute there."""
        return self.device if self.engine == "serial" else "cpu"

    def options(self) -> dict[str, Any]:
        """Everything that this run uses, by name, hyper-parameters of rules included."""
        used = {name: getattr(self, name) for name, row in OPTIONS.items() if row.when.holds(self)}
        return {**used, **dict(self.rules)}


OPTIONS = options_of(Config)


def all_options() -> dict[str, Option]:
    """The options of every run, then the hyper-parameters of all rules; made anew only if the tables have changed."""
    rows = [
        row
        for table in (tables.TOPOLOGIES, tables.LOCAL_RULES, tables.SERVER_RULES, tables.AVERAGES)
        for row in table.items()
    ]
    if _made.rows != rows:
        by_name: dict[str, dict[str, tables.Parameter]] = {}  # rules that share a hyper-parameter name it alike
        for rule, row in rows:
            for parameter in row.parameters:
                by_name.setdefault(parameter.name, {})[rule] = parameter
        of_rules = {name: _rule_option(name, parameters) for name, parameters in by_name.items()}
        _made.rows, _made.options = rows, {**OPTIONS, **of_rules}
    return dict(_made.options)


_made = types.SimpleNamespace(rows=[], options={})


def _rule_option(name: str, by_rule: dict[str, tables.Parameter]) -> Option:
    first, *_ = by_rule.values()
    defaults = {rule: parameter.default for rule, parameter in by_rule.items()}
    alike = len(set(defaults.values())) == 1
    usual = f"{first.default}" if alike else ", ".join(f"{rule} {value}" for rule, value in defaults.items())
    under = [f"under {topology} {value}" for topology, value in first.under.items()]
    return Option(
        name,
        (first.kind, types.NoneType) if first.default is None else (first.kind,),
        "algorithm",
        partial(_rule_default, name),
        first.help,
        first.range,
        when=Condition(", ".join(by_rule), lambda run: name in run.parts.parameters()),
        usual="" if first.default is None else "; ".join([usual, *under]),
    )


def _rule_default(name: str, run: Config) -> Any:
    parameter = run.parts.parameters()[name]
    return parameter.under.get(run.parts.topology, parameter.default)


def role_of(name: str) -> Role:
    """The role of an option; hyper-parameters of a user's own rule, which is in no table, change the results."""
    row = all_options().get(name)
    return row.role if row else Role.RESULT


def differences(before: Config, now: Config) -> list[tuple[str, Any, Any]]:
    """The options by which the results of one config may differ from the other's: their names and both values."""
    old, new = before.options(), now.options()
    undecided = {name for name, row in OPTIONS.items() if getattr(now, name) == row.undecided}
    decisive = {"rounds"} if on.TOWARDS_THE_END.holds(before) else set()  # the rate falls towards the last round
    if (before.patience is None) != (now.patience is None):
        decisive.add("patience")  # a run without patience does not keep its best model
    return [
        (name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
        and (role_of(name) is Role.RESULT or name in decisive)
        and name not in undecided
    ]


def differences_in_words(before: Config, now: Config) -> str:
    """As flags with their old and new values; empty if there are none."""
    why = {"rounds": " (the learning rate falls towards the last)"}
    return ", ".join(f"{flag(name)} {old} -> {new}{why.get(name, '')}" for name, old, new in differences(before, now))
