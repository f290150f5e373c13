"""What a run may claim: epsilon at a delta for the client that took part most often, and the noise for an epsilon.

Neighbouring runs differ in the data of one client, which is there or is not (docs/privacy.md).
"""

import math
from dataclasses import dataclass, replace

from fedseq.privacy.gaussian import epsilon_of, least, mu_of

UNCERTAIN = 0.01  # probability that some client is drawn more often than `most_draws` says


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
