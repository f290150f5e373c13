"""Every option of a run: one frozen record, in which each option carries its default, range, meaning and role.

A `Config` is always complete: `resolve` makes it from the options that were given, fills in what follows from the
data set and the algorithm, and refuses what makes no sense, or would have no effect. Hyper-parameters of rules are
options too; their rows are in tables.py, and their values in `Config.rules`.
"""

import types
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedseq.options import conditions as on
from fedseq.options import tables
from fedseq.options.conditions import (
    default_alpha,
    default_engine,
    default_metric_of,
    default_partition,
    default_update_check,
)
from fedseq.options.datasets import CATALOG, FILE_SOURCES, DatasetFacts, FileDefaults, facts_of, has_columns
from fedseq.options.grammar import AUTHORS_PARTS, CENTRALIZED, AlgorithmName, authors_parts, known_parts
from fedseq.options.option import (
    AT_LEAST_0,
    AT_LEAST_1,
    BELOW_1,
    FROM_0_TO_1,
    FROM_1_TO_1000,
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
from fedseq.privacy.accountant import default_noise
from fedseq.simulation.attacks import described

PLACE = {"role": Role.PLACE}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's options, all decided: those that were given, and the defaults that follow from them."""

    # fmt: off
    dataset: str = option(
        "data", "digits", f"a named data set ({', '.join(CATALOG)}) or your own files: {', '.join(FILE_SOURCES)}")
    algorithm: str = option(
        "algorithm", "fedseq", "[fedseq|fedseqinter][+local rule][+server rule][+average], or centralized")
    data_dir: str | None = option("data", None, "folder with the data set's files", metavar="DIR", **PLACE)
    clients_by: str | None = option(
        "data", lambda run: run.facts.clients_by, "column that names the client of each example", metavar="COLUMN",
        when=on.COLUMNS, usual="the data set's, or none: examples are split over --num-clients")
    label_column: str | None = option(
        "data", None, "column that holds the class", metavar="COLUMN", when=on.A_TABLE, usual="label")
    holdout: float | None = option(
        "data", lambda run: run.facts.holdout, "share of the examples kept for testing", range=SHARE,
        when=on.NO_TEST_SET, usual="tables 0.2, smartwatch 0.3")
    holdout_by: str = option(
        "data", lambda run: run.facts.holdout_by, "what is kept for testing: `examples` of every client, whole "
        "`clients`, or all examples with some values of the column named here", when=on.HELD_OUT,
        usual="examples; smartwatch: person")
    num_clients: int = option(
        "data", lambda run: 1 if run.centralized else run.facts.num_clients,
        "number of clients K that the training data is split over", range=AT_LEAST_1, when=on.COUNTED,
        usual="the data set's")
    alpha: float = option(
        "data", default_alpha, "Dirichlet concentration: 0 gives each client one class, inf is i.i.d.",
        range=Range(lambda value: value >= 0, "0 or more (inf is i.i.d.)"), when=on.DIRICHLET,
        usual="0; your own files: inf")
    partition: str | None = option(
        "data", default_partition, "how examples are split over clients: dirichlet draws each client's mix of classes "
        "from Dir(alpha), shards gives each about one class, iid mixes all classes", choices=tables.PARTITIONS,
        when=on.DEALT, usual="chosen by alpha")
    exemplars: int = option(
        "data", 10, "public examples per class that the server takes from the test set (at most a tenth of it)",
        range=AT_LEAST_0, when=on.EXEMPLARS)
    augment: str = option(
        "data", lambda run: run.facts.augment, "augmentation of training batches", choices=tables.AUGMENTATIONS,
        usual="the data set's")

    model: str | None = option(
        "model", lambda run: run.facts.model, f"{', '.join(tables.MODELS)}, or your own as package.module:Class "
        "(called with (shape, num_classes), with (num_classes) or without arguments)", undecided=None,
        usual="the data set's")
    trainable: str = option(
        "model", "all", "part of the model that clients train and send: all, head (the last linear layer) or "
        "lora:RANK", metavar="PART")
    init_weights: str | None = option(
        "model", None, "start from the weights in this .safetensors file instead of random weights", metavar="FILE")

    rounds: int = option(
        "algorithm", lambda run: run.facts.centralized_epochs if run.centralized else run.facts.rounds,
        "number of rounds T", range=AT_LEAST_1, role=Role.EXTENT, usual="the data set's")
    fraction: float = option(
        "algorithm", lambda run: 1.0 if run.centralized else 0.2,
        "share C of the clients or superclients drawn in each round", range=SHARE, when=on.FEDERATED, usual="0.2")
    local_epochs: int = option(
        "algorithm", 1, "epochs E that a client trains each time it is visited", range=AT_LEAST_1, when=on.FEDERATED)
    superclient_epochs: int = option(
        "algorithm", 1, "passes E_S over the clients of a superclient in each round", range=FROM_1_TO_1000,
        when=on.SUPERCLIENTS)
    superclients_per_chain: int = option(
        "algorithm", 1, "train this many of the drawn superclients one after another, as one longer chain",
        range=AT_LEAST_1, when=on.MERGED)
    long_chain_rounds: int | None = option(
        "algorithm", None, "form the longer chains in the first N rounds only", range=AT_LEAST_0, when=on.JOINED,
        usual="all")
    authors_code: str | None = option(
        "algorithm", None, "follow the code of the paper's authors where it differs from the paper: "
        f"{', '.join(AUTHORS_PARTS)}, or several as partition+feddyn", metavar="PARTS", when=on.AUTHORS_PARTS_USED)
    rules: tuple[tuple[str, Any], ...] = ()  # hyper-parameters of the algorithm's rules: (name, value)
    batch_size: int = option(
        "local training", 64, "examples per SGD step (a client's last batch may be smaller)", range=AT_LEAST_1)
    lr: float = option(
        "local training", lambda run: run.facts.lr, "learning rate", range=POSITIVE, usual="the data set's")
    lr_scheduler: str = option(
        "local training", lambda run: "cosine" if run.centralized else "constant",
        "how the learning rate changes over the rounds", choices=("constant", "linear", "cosine", "exponential"),
        usual="constant; centralized: cosine")
    lr_final: float = option(
        "local training", 0.0, "the learning rate falls towards this share of --lr", range=FROM_0_TO_1,
        when=on.TOWARDS_THE_END)
    lr_decay: float = option(
        "local training", 0.99, "factor that the learning rate is multiplied by after every round", range=SHARE,
        when=on.EXPONENTIAL)
    warmup_rounds: int = option(
        "local training", 0, "raise the learning rate linearly over the first N rounds", range=AT_LEAST_0)
    momentum: float = option(
        "local training", lambda run: 0.9 if run.centralized else 0.0,
        "momentum of local SGD; it starts at zero on each visit", range=BELOW_1, usual="0; centralized: 0.9")
    weight_decay: float = option("local training", 4e-4, "weight decay (L2)", range=AT_LEAST_0)
    max_grad_norm: float | None = option("local training", None, "clip gradients to this L2 norm", range=POSITIVE)
    kernels: str = option(
        "local training", "auto", "convolution kernels: `fast` (ours, two to three times faster) or `torch`",
        choices=("auto", "fast", "torch"), undecided="auto", usual="auto: fast where model and machine allow it")
    precision: str = option(
        "local training", "float32", "number format that layers compute in; weights stay float32",
        choices=("float32", "bfloat16"))
    grouping: str = option(
        "superclients", "greedy", "how superclients are formed (phi): greedy is the paper's, exchange swaps clients "
        "until no swap mixes the classes better, kmeans deals the clients of each cluster apart, "
        "random looks at nothing", choices=tables.METHODS, when=on.SUPERCLIENTS)
    approximator: str = option(
        "superclients", "confidence", "how the server estimates a client's classes (psi): by the confidence of its "
        "pre-trained model on the public exemplars, or by weights of its last layers", choices=tables.APPROXIMATORS,
        when=on.ESTIMATES)
    grouping_metric: str | None = option(
        "superclients", default_metric_of, "how a client's fit to a superclient is measured (tau)",
        choices=tables.METRICS, when=on.ESTIMATES, usual="kl; classifiers: cosine; exchange: none")
    pretrain_epochs: int = option(
        "superclients", 10, "epochs e that every client pre-trains before the server estimates its classes",
        range=FROM_1_TO_1000, when=on.ESTIMATES)
    min_samples: int | None = option(
        "superclients", None, "a superclient is complete with this many examples", range=AT_LEAST_1,
        when=on.SUPERCLIENTS, usual="8*floor(n/K)")
    max_clients: int = option(
        "superclients", 11, "a superclient is complete with this many clients (K_S,max)", range=AT_LEAST_1,
        when=on.SUPERCLIENTS)
    group_estimate: str = option(
        "superclients", "mean", "how the estimates of a superclient's clients are combined: mean (weighted by "
        "examples) or half (the paper's running average)", choices=("mean", "half"), when=on.A_GROUP_ESTIMATE)
    client_dropout: float = option(
        "failures", 0.0, "probability that a client fails on a visit", range=FROM_0_TO_1)
    client_speed: float = option(
        "failures", 10.0, "SGD steps per second of the median simulated client", range=POSITIVE)
    speed_spread: float = option(
        "failures", 0.5, "how much simulated clients differ in speed: standard deviation of its logarithm",
        range=Range(lambda value: 0 <= value <= 5, "from 0 to 5"))
    bandwidth: float = option(
        "failures", 1e6, "bytes per second that a simulated client sends or receives", range=POSITIVE)
    deadline: float | None = option(
        "failures", None, "skip a client whose visit takes longer than this many simulated seconds", range=POSITIVE,
        metavar="SECONDS")
    attack: str | None = option("failures", None, f"what malicious clients do: {described()}", simulated=True)
    attacker_fraction: float = option(
        "failures", 0.1, "share of the clients that are malicious", range=FROM_0_TO_1, when=on.AN_ATTACK,
        simulated=True)
    update_check: str = option(
        "failures", default_update_check, "reject updates of clients: size rejects those that are not finite or far "
        "larger than the others; exemplars also tests on the public exemplars what each update does",
        choices=("none", "size", "exemplars"), when=on.NO_PRIVATE_ROUNDS, usual="none; with --attack: size")
    update_check_factor: float = option(
        "failures", 20.0, "an update is too large at this many times the median size of accepted updates",
        range=Range(lambda value: value > 1, "greater than 1"), when=on.CHECKED)
    dp_clip_norm: float | None = option(
        "privacy", None, "clip the change that a client (or a chain) makes to this L2 norm C; with noise this gives "
        "differential privacy", range=Range(lambda value: value > 0, "greater than 0 (inf does not clip)"),
        when=on.FEDERATED)
    dp_mechanism: str = option(
        "privacy", "visit", "who adds the noise: each client on every visit, or the server once a round, to the sum "
        "of the chains", choices=("visit", "round"), when=on.PRIVATE)
    dp_source: str = option(
        "privacy", "seed", "where the noise comes from: the run's seed (repeatable) or the system's cryptographic "
        "generator", choices=("seed", "system"), when=on.PRIVATE, usual="seed; in a federation: system")
    dp_target_delta: float = option(
        "privacy", 1e-5, "delta: probability that the bound epsilon may fail",
        range=Range(lambda value: 1e-100 <= value < 1, "at least 1e-100 and less than 1"), when=on.PRIVATE)
    dp_target_epsilon: float | None = option(
        "privacy", None, "the run ends before the epsilon of its most visited client exceeds this",
        range=Range(lambda value: 1e-6 <= value <= 1e9, "from 0.000001 to 1,000,000,000"), when=on.PRIVATE)
    dp_noise_multiplier: float | None = option(
        "privacy", default_noise, "z: standard deviation of the noise, divided by --dp-clip-norm",
        range=Range(lambda value: value == 0 or 1e-6 <= value <= 1e12, "0, or at least 0.000001"),
        when=on.PRIVATE, usual="what --dp-target-epsilon and --rounds allow", undecided=None)
    seed: int = option("run", 0, "seed of all random numbers", range=AT_LEAST_0)
    eval_every: int = option("run", 1, "evaluate every N rounds, and after the last one", range=AT_LEAST_1)
    eval_clients: int | None = option(
        "run", None, "also evaluate on the held-out examples of N single clients (of all, if there are fewer)",
        range=AT_LEAST_1, when=on.TESTED_CLIENTS, simulated=True)
    target_accuracy: float | None = option(
        "run", None, "stop at the first evaluation with this accuracy (0..1)", range=SHARE, role=Role.EXTENT)
    patience: int | None = option(
        "run", None, "stop after N rounds without a better evaluation", range=AT_LEAST_1, role=Role.EXTENT)
    checkpoint_every: int | None = option(
        "run", None, "save a checkpoint every N rounds", range=AT_LEAST_1, usual="one a minute", **PLACE)
    memory_limit: float = option(
        "run", 4.0, "GiB of clients' state kept in RAM; what is more goes to files", metavar="GIB",
        range=Range(lambda value: value >= 0, "0 or more"), **PLACE)
    track: str = option(
        "run", "none", f"experiment tracker: {', '.join(tables.TRACKERS)}, or several as wandb+mlflow", **PLACE)
    device: str = option("run", "cpu", "cpu, cuda or mps", metavar="DEVICE", **PLACE)
    workers: int | None = option(
        "run", None, "number of worker processes", range=FROM_1_TO_1000, when=on.WORKERS, simulated=True,
        usual="one per core", **PLACE)
    ray_address: str | None = option(
        "run", None, "address of a running Ray cluster", metavar="ADDRESS", when=on.RAY, simulated=True,
        usual="one is started", **PLACE)
    engine: str = option(
        "run", default_engine, "where clients are trained: in worker processes, on a Ray cluster, or one after "
        "another in this process", choices=tables.ENGINES, simulated=True, usual="processes where they help", **PLACE)
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
