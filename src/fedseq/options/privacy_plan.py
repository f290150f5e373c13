"""What options say of privacy: which mechanism, whose noise, what it promises for the rounds that are planned."""

import math
from dataclasses import replace
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.conditions import FEDERATED, algorithm_of, is_natural, uses_estimates
from fedseq.options.option import AT_LEAST_0, POSITIVE, Range, Use
from fedseq.privacy.accountant import Accountant, most_draws

PRIVATE = Use("private runs, by --dp-clip", lambda options: is_private(options))
UNLESS_ROUNDS = Use(
    "runs without --dp-mechanism round: what one client sends would change what others may send",
    lambda options: not private_rounds(options),
)
# A chain with a client's data and the same chain without it are both as long as the clip: apart by twice as much.
SENSITIVITY = {"visit": 1.0, "round": 2.0}
ROUNDS_REFUSE = {
    "scaffold": "its control variates reach the server without noise. Use --dp-mechanism visit",
    "feddyn": "what its server keeps of every chain is without noise. Use --dp-mechanism visit",
    "fedseqinter": "its models go from chain to chain without noise. Use fedseq, or --dp-mechanism visit",
    "fairavg": "private rounds count every unit alike already. Leave it out",
    "median": "private rounds give it the noisy mean alone. Use --dp-mechanism visit",
    "trimmed-mean": "private rounds give it the noisy mean alone. Use --dp-mechanism visit",
}


def is_private(options: Any) -> bool:
    return options.dp_clip is not None


def private_visits(options: Any) -> bool:
    return is_private(options) and options.dp_mechanism != "round"


def private_rounds(options: Any) -> bool:
    return is_private(options) and options.dp_mechanism == "round"


def default_gate(options: Any) -> bool:
    return (options.attack is not None or options.gate_check == "exemplars") and not private_rounds(options)


def accountant(options: Any, share: float | None = None) -> Accountant:
    """`share` of the units is drawn in a round: it counts where nobody but the server knows which.

    Real clients are told the seed, from which it follows who is drawn.
    """
    secret = private_rounds(options) and options.dp_source == "seed"
    return Accountant(
        options.dp_noise or 0.0, options.dp_delta, SENSITIVITY[options.dp_mechanism], share if secret else None
    )


def planned(options: Any) -> tuple[Accountant, int]:
    """How the planned rounds will be accounted, and how often the client most exposed by them is."""
    share = planned_share(options)
    found = accountant(options, share)
    if found.share is not None:
        return found, options.rounds
    draws = most_draws(options.rounds, share, options.num_clients)
    if private_rounds(options):
        return found, draws
    return found, draws * options.superclient_epochs + visits_before(options)


def visits_before(options: Any) -> int:
    """Visits to a client before the first round: to estimate its classes, and to calibrate the gate."""
    return (options.pretrain_epochs if uses_estimates(options) else 0) + bool(options.gate)


def planned_share(options: Any) -> float:
    """Of a few units at least one is drawn; there are at least as many as full superclients would make."""
    per_unit = options.max_clients if algorithm_of(options).superclients else 1
    return float(min(1.0, max(options.fraction, per_unit / options.num_clients)))


def default_noise(options: Any) -> float | None:
    """What keeps the planned rounds within --dp-epsilon; left open for clients that exist, until they are counted."""
    return None if is_natural(options) else _noise_within_epsilon(options)


def with_noise(config: Any, clients: int) -> Any:
    """The config with the noise that was left open."""
    if config.dp_noise is not None:
        return config
    return replace(config, dp_noise=_noise_within_epsilon(replace(config, num_clients=clients)))


def _noise_within_epsilon(options: Any) -> float | None:
    if not is_private(options) or options.dp_epsilon is None:
        return None
    found, times = planned(options)
    return found.with_noise_for(options.dp_epsilon, times).noise


def check_privacy(options: Any) -> None:
    """What does not fit together in a private run."""
    if not is_private(options):
        return
    if options.dp_noise is None and options.dp_epsilon is None:
        raise FedSeqError("--dp-clip alone promises nothing: give --dp-noise, or --dp-epsilon to find it.")
    if math.isinf(options.dp_clip) and (options.dp_noise or options.dp_noise is None):
        raise FedSeqError("noise is measured in clips, and --dp-clip inf has no size. Give a finite one.")
    if options.evaluate_clients:
        raise FedSeqError(
            "--evaluate-clients tells how the model does for single clients, and no noise hides it. Leave it out."
        )
    if not private_rounds(options):
        return
    algorithm = algorithm_of(options)
    for part in (algorithm.topology, algorithm.local, algorithm.server):
        if part in ROUNDS_REFUSE and not (part == "fedseqinter" and dict(options.rules).get("merge_every") == 1):
            raise FedSeqError(f"{part} cannot be used with --dp-mechanism round: {ROUNDS_REFUSE[part]}.")
    if uses_estimates(options):
        raise FedSeqError(
            f"--method {options.method} groups clients by what they hold, and with --dp-mechanism round nothing hides "
            "it: every chain would depend on every client. Use --method random, or --dp-mechanism visit."
        )


# --- the options, as Config takes them -------------------------------------------------------------------------------

CLIP: dict[str, Any] = {
    "default": None,
    "help": "C: longest change that a client, or a chain, may make; with noise, differential privacy",
    "range": Range(lambda value: value > 0, "greater than 0 (inf does not clip)"),
    "use": FEDERATED,
}
MECHANISM: dict[str, Any] = {
    "default": "visit",
    "help": "what gets noise: every visit in its client, or the sum of a round's chains on the server",
    "choices": ("visit", "round"),
    "use": PRIVATE,
}
SOURCE: dict[str, Any] = {
    "default": "seed",
    "help": "of the noise: the seed, or the system's cryptographic source",
    "choices": ("seed", "system"),
    "use": PRIVATE,
    "usual": "seed; in a federation: system",
}
DELTA: dict[str, Any] = {
    "default": 1e-5,
    "help": "probability at which epsilon may fail",
    "range": Range(lambda value: 0 < value < 1, "greater than 0 and less than 1"),
    "use": PRIVATE,
}
EPSILON: dict[str, Any] = {
    "default": None,
    "help": "budget of the client that trains most often, which the run never exceeds",
    "range": POSITIVE,
    "use": PRIVATE,
}
NOISE: dict[str, Any] = {
    "default": default_noise,
    "help": "z: standard deviation of the noise, in clips",
    "range": AT_LEAST_0,
    "use": PRIVATE,
    "usual": "what --dp-epsilon and --rounds allow",
    "open": None,
}
