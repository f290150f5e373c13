"""How much privacy the planned rounds of a config spend, and which noise keeps them within a budget."""

from dataclasses import replace
from typing import TYPE_CHECKING

from fedseq.privacy.accountant import Accountant, most_draws

if TYPE_CHECKING:
    from fedseq.options.config import Config

# A chain with a client's data and the same chain without it are both within the clip: apart by up to twice as much.
SENSITIVITY = {"visit": 1.0, "round": 2.0}


def accountant(config: "Config", share: float | None = None) -> Accountant:
    """The accountant of a run that draws `share` of the units in a round.

    Sampling amplifies privacy only if nobody but the server knows who is drawn. Real clients know the seed, from which
    the draws follow.
    """
    secret = config.private_rounds and config.dp_source == "seed"
    return Accountant(
        config.dp_noise_multiplier or 0.0,
        config.dp_target_delta,
        SENSITIVITY[config.dp_mechanism],
        share if secret else None,
    )


def planned(config: "Config") -> tuple[Accountant, int]:
    """The accountant of the planned rounds, and how often the most exposed client takes part in them."""
    # At least one unit is drawn, however few there are; full superclients make the fewest units.
    per_unit = config.max_clients if config.parts.superclients else 1
    share = float(min(1.0, max(config.fraction, per_unit / config.num_clients)))
    ours = accountant(config, share)
    if ours.share is not None:
        return ours, config.rounds
    draws = most_draws(config.rounds, share, config.num_clients)
    if config.private_rounds:
        return ours, draws
    # Before the first round, clients are visited to estimate their classes and to calibrate the gate.
    before = (config.pretrain_epochs if config.uses_estimates else 0) + bool(config.gate)
    return ours, draws * config.superclient_epochs + before


def default_noise(config: "Config") -> float | None:
    """The noise that keeps the planned rounds within --dp-target-epsilon; real clients have to be counted first."""
    return None if config.real_clients else _noise_within_epsilon(config)


def with_noise(config: "Config", clients: int) -> "Config":
    """The config with the noise that was undecided before the clients were counted."""
    if config.dp_noise_multiplier is not None:
        return config
    return replace(config, dp_noise_multiplier=_noise_within_epsilon(replace(config, num_clients=clients)))


def _noise_within_epsilon(config: "Config") -> float | None:
    if not config.private or config.dp_target_epsilon is None:
        return None
    ours, times = planned(config)
    return ours.with_noise_for(config.dp_target_epsilon, times).noise
