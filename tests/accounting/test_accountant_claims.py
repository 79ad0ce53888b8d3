"""No accountant says less than what is known to be true: closed forms, and distributions that can be added up."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from support.noise_case import gaussian_delta

from fastfedrec.accounting import Gaussian, LocalReports, PLDAccountant, RDPAccountant, ShuffledReports, ZCDPAccountant
from fastfedrec.accounting import _loss as losses


def gaussian_epsilon(mu, delta):
    """The least epsilon of releases that cost `mu` together."""
    return optimize.brentq(lambda epsilon: gaussian_delta(epsilon, mu) / delta - 1, 0, 50 * mu + 50 * mu**2)


@pytest.mark.parametrize("accountant", [ZCDPAccountant, RDPAccountant, PLDAccountant])
@pytest.mark.parametrize("z", [0.6, 1.0, 4.0])
@pytest.mark.parametrize("count", [1, 10])
def test_every_accountant_is_at_least_the_closed_form_of_a_gaussian(accountant, z, count):
    """And at most a quarter above it."""
    event = Gaussian(z, neighboring="replace", sampling="none")
    for delta in (1e-3, 1e-6, 1e-8):
        truth = gaussian_epsilon(math.sqrt(count) / z, delta)
        found = accountant().compose(event, count).get_epsilon(delta)
        assert truth <= found <= 1.25 * truth
        assert not 0.9 * found >= 1.25 * truth


@pytest.mark.parametrize("times", [1, 3])
def test_losses_beyond_the_grid_are_paid_for(times):
    """A release that tells everything with probability 0.1 does so at any epsilon."""
    loss = losses.LossPmf(0, np.array([0.9]), 0.1)
    total = losses.convolve([(loss, times)], 1e-3)
    assert total.delta(20.0) >= 1 - 0.9**times
    assert total.delta(20.0) <= 1 - 0.9**times + 1e-6


@pytest.mark.parametrize("count", [1, 3])
def test_adding_a_user_is_accounted_for_as_removing_one_is(count):
    """Delta of one Poisson-sampled Gaussian by integration, in both directions; the larger one holds."""
    z, rate, epsilon = 1.0, 0.3, 0.2
    x, step = np.linspace(-40, 40, 400_001, retstep=True)
    rest, own = stats.norm.pdf(x, 0, z), stats.norm.pdf(x, 1, z)
    mixed = rate * own + (1 - rate) * rest
    removed, added = (
        float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step) for p, q in ((mixed, rest), (rest, mixed))
    )
    assert abs(removed - added) > 1e-3
    event = Gaussian(z, neighboring="add_remove", sampling="poisson", sampling_probability=rate)
    assert PLDAccountant().compose(event).get_delta(epsilon) >= max(removed, added) * (1 - 1e-6)
    totals = PLDAccountant().compose(event, count)
    totals.get_delta(epsilon)
    assert len(totals._totals()) == 2


@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 200), (8, 200)])
def test_data_against_none_of_several_reports_is_at_least_that_of_their_sum(n_reports, n_users):
    """The number of ones among all reports, where one user's are all ones or fair coins and the others' are coins."""
    epsilon, delta = 1.5, 1e-4
    event = ShuffledReports("binary response", epsilon, n_reports, n_users, neighboring="zero_out")
    found = PLDAccountant().compose(event).get_epsilon(delta)
    keep = 1 / (1 + math.exp(-epsilon))
    others = stats.binom.pmf(np.arange((n_users - 1) * n_reports + 1), (n_users - 1) * n_reports, 0.5)
    with_data = np.convolve(others, stats.binom.pmf(np.arange(n_reports + 1), n_reports, keep))
    without = np.convolve(others, stats.binom.pmf(np.arange(n_reports + 1), n_reports, 0.5))
    truth = optimize.brentq(lambda e: np.maximum(with_data - math.exp(e) * without, 0).sum() / delta - 1, 0, 20)
    assert found >= truth


def test_reports_of_several_rounds_cost_what_as_many_of_one_round_do():
    for target in (0.3, 1.0):
        together = PLDAccountant().compose(LocalReports("binary response", 0.4, 12, 100)).get_delta(target)
        found = PLDAccountant().compose(LocalReports("binary response", 0.4, 3, 100), 4).get_delta(target)
        assert found == pytest.approx(together, rel=1e-6)
        assert found > 2 * PLDAccountant().compose(LocalReports("binary response", 0.4, 3, 100)).get_delta(target)
