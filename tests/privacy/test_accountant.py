"""The accountant against formulas and against dp-accounting (Google's library), which shares no code with ours."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.stats import binom, norm

from fedseq.privacy.accountant import Accountant, most_draws
from fedseq.privacy.gaussian import delta_of, epsilon_of, mu_of
from fedseq.privacy.sampling import compose, epsilon_of_rounds, sampled_gaussian

DELTA = 1e-5


@pytest.mark.parametrize("noise", [0.4, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("visits", [1, 7, 100])
def test_visits_are_one_gaussian_mechanism_exactly(noise: float, visits: int) -> None:
    """Balle and Wang's formula by scipy; and the library, which convolves the visits one by one."""
    epsilon = Accountant(noise, DELTA, sensitivity=1.0).epsilon(visits)
    mu = math.sqrt(visits) / noise
    tails = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    assert np.exp(tails[0]) - np.exp(tails[1]) == pytest.approx(DELTA, rel=1e-4)
    library = privacy_loss_distribution.from_gaussian_mechanism(
        noise / math.sqrt(visits), value_discretization_interval=epsilon / 1000
    )
    assert epsilon == pytest.approx(library.get_epsilon_for_delta(DELTA), rel=0.01)


def test_the_library_composes_visits_as_we_do() -> None:
    library = privacy_loss_distribution.from_gaussian_mechanism(5.0, value_discretization_interval=2e-3).self_compose(
        20
    )
    assert epsilon_of(math.sqrt(20) / 5, DELTA) == pytest.approx(library.get_epsilon_for_delta(DELTA), rel=0.01)


def test_tails_too_small_for_a_float_and_inverses() -> None:
    assert delta_of(2000.0, 1.0) == 0.0
    assert epsilon_of(0.0, DELTA) == 0.0
    assert epsilon_of(math.inf, DELTA) == math.inf
    for mu in (0.01, 1.0, 30.0):
        assert mu_of(epsilon_of(mu, DELTA), DELTA) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(
    ("share", "noise", "rounds"), [(0.2, 5.0, 300), (0.05, 0.8, 50), (0.1, 2.0, 1), (0.5, 9.0, 40)]
)
def test_sampled_rounds_compose_as_the_library_composes_the_same_bound(share: float, noise: float, rounds: int) -> None:
    """The bound of one round goes to the library as deltas on a grid over both signs; it composes by its own code.

    delta(-eps) = 1 - e^-eps + e^-eps delta(eps), as the bound is symmetric. Beside it stand the library's own numbers:
    for Poisson sampling (a smaller problem) and, by Renyi divergences, for sampling without replacement (looser).
    """
    ours = epsilon_of_rounds(share, 2 / noise, rounds, DELTA)
    step = 4e-3
    grid = np.arange(-5000, 5001)
    above = sampled_gaussian(share, 2 / noise)(np.abs(grid) * step)
    deltas = np.where(grid >= 0, above, 1 - np.exp(grid * step) * (1 - above))
    single = pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, deltas)
    library = privacy_loss_distribution.PrivacyLossDistribution(single).self_compose(rounds)
    assert ours == pytest.approx(library.get_epsilon_for_delta(DELTA), rel=0.01)
    poisson = privacy_loss_distribution.from_gaussian_mechanism(
        noise / 2, sampling_prob=share, value_discretization_interval=step
    ).self_compose(rounds)
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    renyi.compose(SampledWithoutReplacementDpEvent(1000, int(share * 1000), GaussianDpEvent(noise / 2)), rounds)
    assert poisson.get_epsilon_for_delta(DELTA) <= ours * 1.001 <= renyi.get_epsilon(DELTA)


def test_rounds_in_which_all_are_drawn_are_a_gaussian_mechanism() -> None:
    convolved = compose(sampled_gaussian(1.0, 0.3), 25).epsilon(DELTA)
    assert convolved == pytest.approx(epsilon_of(0.3 * 5, DELTA), rel=1e-3)


@pytest.mark.parametrize("share", [None, 0.2])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_noise_for_an_epsilon_keeps_to_it_and_wastes_little(share: float | None, epsilon: float) -> None:
    found = Accountant(0.0, DELTA, 2.0, share).with_noise_for(epsilon, 40)
    assert 0.98 * epsilon < found.epsilon(40) <= epsilon


def test_no_noise_promises_nothing_and_nothing_costs_nothing() -> None:
    assert Accountant(0.0, DELTA, 1.0).epsilon(1) == math.inf
    assert Accountant(0.0, DELTA, 1.0).epsilon(0) == 0.0


@pytest.mark.parametrize(("rounds", "share", "units"), [(300, 0.2, 1000), (10, 0.5, 12), (5, 0.01, 3)])
def test_most_draws_is_the_binomial_bound(rounds: int, share: float, units: int) -> None:
    """The least number that all units stay below with 99 %, by scipy's binomial tail."""
    tails = units * binom.sf(np.arange(rounds + 1), rounds, share)
    assert most_draws(rounds, share, units) == max(1, int(np.argmax(tails <= 0.01)))
    assert most_draws(rounds, 1.0, units) == rounds
