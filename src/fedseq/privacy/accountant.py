"""What a run may claim: epsilon at a delta for the client that took part most often, and the noise for an epsilon.

At the end stands what the planned rounds of a config spend, and which noise keeps them within a budget.
Neighbouring runs differ in the data of one client, which is there or is not (docs/privacy.md).
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedseq.privacy.gaussian import epsilon_of, least, mu_of

if TYPE_CHECKING:
    from fedseq.options.config import Config

UNCERTAIN = 0.01  # probability that some client is drawn more often than `most_draws` says
# A chain with a client's data and the same chain without it are both within the clip: apart by up to twice as much.
SENSITIVITY = {"visit": 1.0, "round": 2.0}


@dataclass(frozen=True)
class Accountant:
    noise: float  # standard deviation over the clip
    delta: float
    sensitivity: float  # of what the noise is added to, over the clip
    share: float | None = None  # of the units that are drawn in a round, where nobody knows which

    def epsilon(self, times: int) -> float:
        """After so many releases that one client's data went into; with `share`, after so many rounds."""
        if times == 0:
            return 0.0
        if self.noise == 0:
            return math.inf
        mu = self.sensitivity / self.noise
        if self.share is None:
            return epsilon_of(mu * math.sqrt(times), self.delta)
        from fedseq.privacy.sampling import epsilon_of_rounds  # by numpy, which help does without

        return epsilon_of_rounds(self.share, mu, times, self.delta)

    def with_noise_for(self, epsilon: float, times: int) -> "Accountant":
        """The least noise that keeps so many releases within epsilon, rounded up to four digits."""
        if times == 0:
            return replace(self, noise=0.0)
        noise = self.sensitivity * math.sqrt(times) / mu_of(epsilon, self.delta)
        if self.share is not None:
            unsampled = noise
            noise = unsampled * least(
                lambda part: part > 0 and replace(self, noise=unsampled * part).epsilon(times) <= epsilon, digits=1e-4
            )
        return replace(self, noise=_round_up(noise, 4))


def most_draws(rounds: int, share: float, units: int) -> int:
    """How often the unit that is drawn most often is drawn, at most, but for a probability of a hundredth.

    A unit is drawn in each round with probability `share`, independently: by the union bound over units, the binomial
    tail beyond has to be less than a hundredth of one over their number.
    """
    if share >= 1:
        return rounds
    tail, count = 0.0, rounds
    while count > 0:
        tail += math.exp(
            math.lgamma(rounds + 1) - math.lgamma(count + 1) - math.lgamma(rounds - count + 1)
            + count * math.log(share) + (rounds - count) * math.log1p(-share)
        )  # fmt: skip
        if tail > UNCERTAIN / units:
            return count
        count -= 1
    return 1


def _round_up(number: float, digits: int) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(number)))
    return math.ceil(number * scale * (1 - 1e-12)) / scale


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
