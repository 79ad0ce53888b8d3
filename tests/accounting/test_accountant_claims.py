"""No accountant states less than a known cost: closed forms, and distributions that can be added up."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from support.noise_case import gaussian_delta

from fastfedrec.accounting import Gaussian, LocalReports, PLDAccountant, RDPAccountant, ShuffledReports, ZCDPAccountant
from fastfedrec.accounting import _loss as losses


def gaussian_epsilon(mu, delta):
    """Return the smallest epsilon of releases with the total `mu`."""
    return optimize.brentq(lambda epsilon: gaussian_delta(epsilon, mu) / delta - 1, 0, 50 * mu + 50 * mu**2)


@pytest.mark.parametrize("accountant", [ZCDPAccountant, RDPAccountant, PLDAccountant])
@pytest.mark.parametrize("z", [0.6, 1.0, 4.0])
@pytest.mark.parametrize("count", [1, 10])
def test_every_accountant_is_at_least_the_closed_form_of_a_gaussian(accountant, z, count):
    """The figure is also at most a quarter above the closed form."""
    event = Gaussian(z, neighboring="replace", sampling="none")
    for delta in (1e-3, 1e-6, 1e-8):
        truth = gaussian_epsilon(math.sqrt(count) / z, delta)
        result = accountant().compose(event, count).get_epsilon(delta)
        assert truth <= result <= 1.25 * truth
        assert not 0.9 * result >= 1.25 * truth


@pytest.mark.parametrize("times", [1, 3])
def test_losses_beyond_the_grid_are_paid_for(times):
    """A release that reveals everything with probability 0.1 does so at any epsilon."""
    loss = losses.LossPmf(0, np.array([0.9]), 0.1)
    total = losses.convolve([(loss, times)], 1e-3)
    assert total.delta(20.0) >= 1 - 0.9**times
    assert total.delta(20.0) <= 1 - 0.9**times + 1e-6


@pytest.mark.parametrize("count", [1, 3])
def test_adding_a_user_is_accounted_for_as_removing_one_is(count):
    """The larger delta of both directions counts, for one Poisson-sampled Gaussian by integration."""
    z, rate, epsilon = 1.0, 0.3, 0.2
    x, step = np.linspace(-40, 40, 400_001, retstep=True)
    without_user, with_user = stats.norm.pdf(x, 0, z), stats.norm.pdf(x, 1, z)
    mixed = rate * with_user + (1 - rate) * without_user
    removed, added = (
        float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step)
        for p, q in ((mixed, without_user), (without_user, mixed))
    )
    assert abs(removed - added) > 1e-3
    event = Gaussian(z, neighboring="add_remove", sampling="poisson", sampling_probability=rate)
    assert PLDAccountant().compose(event).get_delta(epsilon) >= max(removed, added) * (1 - 1e-6)
    totals = PLDAccountant().compose(event, count)
    totals.get_delta(epsilon)
    assert len(totals._totals()) == 2


@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 200), (8, 200)])
def test_data_against_none_of_several_reports_is_at_least_that_of_their_sum(n_reports, n_users):
    """One user's reports are all ones or fair coins, and the reports of the other users are coins."""
    epsilon, delta = 1.5, 1e-4
    event = ShuffledReports("binary response", epsilon, n_reports, n_users, neighboring="zero_out")
    result = PLDAccountant().compose(event).get_epsilon(delta)
    keep = 1 / (1 + math.exp(-epsilon))
    crowd = stats.binom.pmf(np.arange((n_users - 1) * n_reports + 1), (n_users - 1) * n_reports, 0.5)
    with_data = np.convolve(crowd, stats.binom.pmf(np.arange(n_reports + 1), n_reports, keep))
    without = np.convolve(crowd, stats.binom.pmf(np.arange(n_reports + 1), n_reports, 0.5))
    truth = optimize.brentq(lambda e: np.maximum(with_data - math.exp(e) * without, 0).sum() / delta - 1, 0, 20)
    assert result >= truth


def test_reports_of_several_rounds_cost_what_as_many_of_one_round_do():
    for target in (0.3, 1.0):
        one_batch = PLDAccountant().compose(LocalReports("binary response", 0.4, 12, 100)).get_delta(target)
        result = PLDAccountant().compose(LocalReports("binary response", 0.4, 3, 100), 4).get_delta(target)
        assert result == pytest.approx(one_batch, rel=1e-6)
        assert result > 2 * PLDAccountant().compose(LocalReports("binary response", 0.4, 3, 100)).get_delta(target)
