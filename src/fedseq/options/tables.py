"""Every name a user may write, as a row of a table: where its code is, what it is, its parameters, what it refuses.

Rows are plain data, so that `--help` and checks need not import what they name; `load` does. To add a rule, a method,
a metric, a model or an engine: write it in a file of its package, and a row here.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.option import AT_LEAST_0, AT_LEAST_1, BELOW_1, FROM_0_TO_1, FROM_1_TO_1000, POSITIVE, Range

if TYPE_CHECKING:
    from fedseq.options.config import Config


@dataclass(frozen=True)
class Row:
    place: str  # package.module:name
    help: str = ""

    def load(self) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


AnyRow = TypeVar("AnyRow", bound=Row)


class Table(dict[str, AnyRow]):
    def __init__(self, kind: str, rows: Mapping[str, AnyRow]):
        super().__init__(rows)
        self.kind = kind

    def row(self, name: str) -> AnyRow:
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]


def load_user_code(kind: str, name: str) -> Callable[..., Any]:
    """A model or rule of the user's own, by `package.module:name`."""
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:  # a console script does not look in the current folder, where users keep theirs
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise FedSeqError(f"{kind} '{name}': cannot import {module_name}: {error}.") from None
    if not hasattr(module, attribute):
        public = (word for word in vars(module) if not word.startswith("_"))
        raise unknown(f"{kind} in {module_name}:", attribute, public)
    code: Callable[..., Any] | None = getattr(module, attribute)
    if not callable(code):
        raise FedSeqError(f"{kind} '{name}': {attribute} is not a class or function.")
    return code


# --- the parts of an algorithm ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of a rule: an option's name, and the argument of the rule's function that gets its value."""

    name: str
    argument: str
    default: Any
    help: str
    range: Range | None = None
    kind: type = float
    under: Mapping[str, Any] = field(default_factory=dict)  # other defaults, by topology


@dataclass(frozen=True)
class Refusal:
    """Runs that a rule refuses, and the message: why, and what to do."""

    holds: "Callable[[Config], bool]"
    message: str


def not_private(rule: str, reason: str, unless: "Callable[[Config], bool]" = lambda run: False) -> Refusal:
    """The refusal of private rounds, in which all that leaves a chain must get noise."""
    return Refusal(
        lambda run: run.private_rounds and not unless(run),
        f"{rule} cannot be used with --dp-mechanism round: {reason}.",
    )


@dataclass(frozen=True)
class Rule(Row):
    parameters: tuple[Parameter, ...] = ()
    merges: bool = False  # it has a server rule of its own, so no other server rule can follow it
    refuses: tuple[Refusal, ...] = ()


# fmt: off
LOCAL_RULES = Table("local rule", {
    "fedavg": Rule("fedseq.algorithms:fedavg", "local SGD and the weighted mean"),
    "fedprox": Rule(
        "fedseq.algorithms.fedprox:fedprox", "pulls a client towards the model it was given",
        (Parameter("mu", "mu", 0.01, "FedProx: weight of the proximal term (0 is FedAvg)", AT_LEAST_0,
                   under={"fedseqinter": 1.0}),),
    ),
    "scaffold": Rule(
        "fedseq.algorithms.scaffold:scaffold", "corrects each gradient by control variates",
        (Parameter("scaffold_option", "option", 1, "SCAFFOLD: control variates from the full gradient (1) or "
                   "from the model's change (2)",
                   Range(lambda value: value in (1, 2), "1 or 2"), int),),
        refuses=(
            Refusal(lambda run: dict(run.rules)["scaffold_option"] == 2 and run.momentum > 0,
                    "scaffold option 2 needs plain SGD. Set --momentum 0 or use --scaffold-option 1."),
            not_private("scaffold", "its control variates reach the server without noise. Use --dp-mechanism visit"),
        ),
    ),
    "feddyn": Rule(
        "fedseq.algorithms.feddyn:feddyn", "bends each client's loss so that optima agree",
        (Parameter("alpha_dyn", "alpha", 0.1, "FedDyn: weight of its regularizer",
                   Range(POSITIVE.holds, "greater than 0: the server divides by it (a tiny value is not FedAvg)"),
                   under={"fedseqinter": 1.0}),),
        merges=True,
        refuses=(not_private("feddyn", "its server keeps a sum over the chains without noise. "
                             "Use --dp-mechanism visit"),),
    ),
    "relay": Rule(
        "fedseq.algorithms.relay:relay", "hands momentum from client to client with the model",
        (
            Parameter("relay_momentum", "momentum", 0.9, "momentum handed along a chain (0 is FedAvg)", BELOW_1),
            Parameter("relay_start", "start", 0.0, "chains start with this share of the last round's mean velocity",
                      FROM_0_TO_1),
        ),
        refuses=(
            Refusal(lambda run: run.momentum > 0, "relay has a momentum of its own. Set --momentum 0."),
            Refusal(lambda run: run.max_grad_norm is not None, "relay steps along its velocity, and --max-grad-norm "
                    "would clip the velocity instead of the gradient. Leave it out."),
        ),
    ),
})

_MOMENTUM = Parameter("server_momentum", "momentum", 0.9, "momentum of the server", BELOW_1)


def _server_lr(default: float) -> Parameter:
    return Parameter("server_lr", "lr", default, "learning rate of the server", POSITIVE)


SERVER_RULES = Table("server rule", {
    "fedavgm": Rule("fedseq.algorithms.server:fedavgm", "momentum on the server", (_server_lr(1.0), _MOMENTUM)),
    "fedadam": Rule("fedseq.algorithms.server:fedadam", "adaptive server optimiser", (_server_lr(0.01), _MOMENTUM)),
    "fedyogi": Rule("fedseq.algorithms.server:fedyogi", "adaptive server optimiser", (_server_lr(0.01), _MOMENTUM)),
    "fedacg": Rule(
        "fedseq.algorithms.fedacg:fedacg", "Nesterov-style look-ahead (FedACG)",
        (Parameter("fedacg_lambda", "strength", 0.85, "FedACG: clients start ahead of the model by this share of "
                   "its last change (0 is off)", BELOW_1),),
    ),
    "ghbm": Rule(
        "fedseq.algorithms.ghbm:ghbm", "momentum over several rounds",
        (_MOMENTUM, Parameter("momentum_rounds", "rounds", 5, "rounds that the momentum averages over (1/C or more)",
                              FROM_1_TO_1000, int)),
    ),
    "fairavg": Rule(
        "fedseq.algorithms.server:fairavg", "every unit counts alike",
        refuses=(not_private("fairavg", "private rounds weigh every unit alike already. Leave it out"),),
    ),
    "median": Rule(
        "fedseq.algorithms.robust:median", "outliers are ignored, coordinate by coordinate",
        refuses=(not_private("median", "the server sees only the noisy mean. Use --dp-mechanism visit"),),
    ),
    "trimmed-mean": Rule(
        "fedseq.algorithms.robust:trimmed_mean", "outliers are ignored, coordinate by coordinate",
        refuses=(not_private("trimmed-mean", "the server sees only the noisy mean. Use --dp-mechanism visit"),),
    ),
})

# The last part of a name: an average changes the model that is evaluated and saved, not what is trained.
AVERAGES = Table("average", {
    "ema": Rule(
        "fedseq.algorithms.averages:ema", "evaluates and saves a moving average of the server's model",
        (Parameter("ema_decay", "decay", 0.9, "weight of the average so far against the newest model (0 is off)",
                   BELOW_1),),
    ),
    "window": Rule(
        "fedseq.algorithms.averages:window", "evaluates and saves the mean of the server's last models",
        (Parameter("window", "models", 5, "number of models that are averaged (1 is off)", FROM_1_TO_1000, int),),
    ),
})

TOPOLOGIES = Table("topology", {
    "fedseq": Rule("fedseq.algorithms.fedseq:fedseq", "trains a superclient's clients one after another"),
    "fedseqinter": Rule(
        "fedseq.algorithms.fedseq:fedseqinter", "models pass through superclients and are merged every N_S rounds",
        (Parameter("merge_every", "merge_every", None, "FedSeqInter: rounds between merges; if not given, N_S",
                   AT_LEAST_1, int),),
        refuses=(not_private("fedseqinter", "its models go from chain to chain without noise. Use fedseq, or "
                             "--dp-mechanism visit", unless=lambda run: dict(run.rules).get("merge_every") == 1),),
    ),
})


# --- how clients are grouped -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Approximator(Row):
    probabilities: bool = False  # estimates are probability vectors over the classes
    layers: slice | None = None  # the fully connected layers whose weights it reads; None reads logits


APPROXIMATORS = Table("approximator", {
    "confidence": Approximator("fedseq.grouping.approximators:confidence", "from logits", probabilities=True),
    "classifier-all": Approximator("fedseq.grouping.approximators:reduce_weights", layers=slice(None)),
    "classifier-last2": Approximator("fedseq.grouping.approximators:reduce_weights", layers=slice(-2, None)),
    "classifier-last": Approximator("fedseq.grouping.approximators:reduce_weights", layers=slice(-1, None)),
})


@dataclass(frozen=True)
class Metric(Row):
    probabilities: bool = False  # defined for probability vectors only


METRICS = Table("metric", {
    name: Metric(f"fedseq.grouping.metrics:{name}", probabilities=name in ("kl", "gini"))
    for name in ("cosine", "euclidean", "wasserstein", "kl", "gini")
})


@dataclass(frozen=True)
class Method(Row):
    metrics: Literal["any", "optional", "none"] | str = "any"  # or the name of the only one it takes
    compares_groups: bool = True  # its metric compares clients with a group's estimate, not with each other

    @property
    def estimates(self) -> bool:
        return self.metrics != "none"


METHODS = Table("method", {
    "random": Method("fedseq.grouping.methods:random", metrics="none"),
    "kmeans": Method("fedseq.grouping.methods:kmeans", metrics="euclidean", compares_groups=False),
    "greedy": Method("fedseq.grouping.methods:greedy"),
    "exchange": Method("fedseq.grouping.methods:exchange", metrics="optional"),  # a metric only to start with
})
# fmt: on

Criterion = tuple[str | None, str | None, str]  # approximator, metric, method


def valid_metrics(method: str, probabilities: bool) -> tuple[str | None, ...]:
    """The metrics that a method takes for these estimates; None is no metric."""
    takes = METHODS.row(method).metrics
    if takes == "none":
        return (None,)
    if takes not in ("any", "optional"):
        return (takes,)
    named = tuple(name for name, row in METRICS.items() if probabilities or not row.probabilities)
    return (None, *named) if takes == "optional" else named


def default_metric(approximator: str | None, method: str) -> str | None:
    """`kl` is the paper's choice for confidence vectors, `cosine` its best for classifiers."""
    valid = valid_metrics(method, approximator is not None and APPROXIMATORS.row(approximator).probabilities)
    return next(metric for metric in (None, "kl", "cosine", *valid) if metric in valid)


def check_criterion(approximator: str | None, metric: str | None, method: str) -> None:
    """Refuse names that do not exist and parts that do not fit together."""
    if approximator is None and METHODS.row(method).estimates:
        raise FedSeqError(f"method '{method}' needs an approximator. Valid: {', '.join(APPROXIMATORS)}.")
    check_metric(metric, method, approximator is not None and APPROXIMATORS.row(approximator).probabilities)


def check_metric(metric: str | None, method: str, probabilities: bool) -> None:
    if metric is not None:
        METRICS.row(metric)
    valid = valid_metrics(method, probabilities)
    if metric not in valid:
        kind = "confidence" if probabilities else "classifier"
        names = ", ".join(name or "none" for name in valid)
        raise FedSeqError(
            f"metric '{metric or 'none'}' does not fit method '{method}' on {kind} estimates. Valid metrics: {names}."
        )


def valid_criteria() -> Iterator[Criterion]:
    """Every distinct criterion; a method that can do without a metric comes without one."""
    yield from ((None, None, method) for method, row in METHODS.items() if not row.estimates)
    for approximator, facts in APPROXIMATORS.items():
        for method, row in METHODS.items():
            if row.metrics == "optional":
                yield approximator, None, method
            elif row.estimates:
                yield from ((approximator, metric, method) for metric in valid_metrics(method, facts.probabilities))


# --- models, engines, data, trackers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model(Row):
    takes: Literal["any", "pictures", "series", "text"] = "any"  # (channels, height, width), (channels, time), (time,)
    smallest: int = 0  # sides of pictures, or length of series

    def fits(self, shape: tuple[int, ...]) -> bool:
        """True if the model can be built for inputs of this shape."""
        dimensions = {"any": len(shape), "pictures": 3, "series": 2, "text": 1}[self.takes]
        return len(shape) == dimensions and min(shape[1:], default=self.smallest) >= self.smallest

    @property
    def wanted(self) -> str:
        """The inputs that fit, in words."""
        if self.takes == "text":
            return "text, whose inputs are lists of characters by number"
        size = f"{self.smallest}x{self.smallest}" if self.takes == "pictures" else f"{self.smallest} points in time"
        return f"{self.takes} of at least {size}"


@dataclass(frozen=True)
class EngineRow(Row):
    workers: bool = False  # it has worker processes, whose number can be chosen
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")


@dataclass(frozen=True)
class PartitionRow(Row):
    dirichlet: bool = False  # it draws from Dir(alpha)


@dataclass(frozen=True)
class TrackerRow(Row):
    package: str = ""  # that has to be installed
    reaches_out: bool = False  # it may send what it is told to another machine, if the user's settings say so


# fmt: off
MODELS = Table("model", {
    "lenet5": Model("fedseq.models.networks:LeNet5", takes="pictures", smallest=16),
    "mlp": Model("fedseq.models.networks:MLP"),
    "small-cnn": Model("fedseq.models.networks:SmallCNN", takes="pictures", smallest=4),
    "resnet20": Model("fedseq.models.networks:ResNet20", takes="pictures", smallest=8),
    "gru": Model("fedseq.models.networks:GRU", takes="text"),
    "cnn1d": Model("fedseq.models.networks:CNN1d", takes="series", smallest=4),
})

ENGINES = Table("engine", {
    "processes": EngineRow("fedseq.engines.processes:open_processes", workers=True, devices=("cpu", "cuda")),
    "ray": EngineRow("fedseq.engines:open_ray", workers=True, devices=("cpu",)),
    "serial": EngineRow("fedseq.engines.serial:open_serial"),
})

PARTITIONS = Table("partition", {
    "dirichlet": PartitionRow("fedseq.data.partition:dirichlet", dirichlet=True),
    "iid": PartitionRow("fedseq.data.partition:iid"),
    "shards": PartitionRow("fedseq.data.partition:shards"),
})

AUGMENTATIONS = Table("augmentation", {
    "crop-flip": Row("fedseq.training.examples:crop_flip"),
    "none": Row("fedseq.training.examples:none"),
})

TRACKERS = Table("tracker", {
    "tensorboard": TrackerRow("fedseq.tracking.trackers:TensorBoard", package="tensorboard"),
    "wandb": TrackerRow("fedseq.tracking.trackers:WeightsAndBiases", package="wandb", reaches_out=True),
    "mlflow": TrackerRow("fedseq.tracking.trackers:MLflow", package="mlflow", reaches_out=True),
})
# fmt: on
