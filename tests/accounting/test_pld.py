"""Tests of privacy loss distributions: oracles in closed form and by quadrature, peers, and bounds."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr
from support.noise_case import gaussian_delta

from fastfedrec.accounting import (
    CentralRelease,
    Gaussian,
    Laplace,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    UnsupportedEventError,
    epsilon_lower_bound,
)
from fastfedrec.accounting import _loss as loss

# design page on sampling without replacement, "Figures": (N, M) -> lower, upper at z = 1, T = 1000, delta = 1e-6
WITHOUT_REPLACEMENT = {
    (4800, 5): (0.1934, 0.2268),
    (4800, 10): (0.4078, 0.4758),
    (4800, 20): (0.8486, 0.9925),
    (4800, 30): (1.2968, 1.5245),
    (760, 2): (0.5228, 0.6099),
    (760, 5): (1.3683, 1.6096),
    (760, 10): (2.8389, 3.3727),
    (760, 15): (4.3812, 5.2350),
}


def plain(z, **fields):
    return Gaussian(z, **({"neighboring": "add_remove", "sampling": "none"} | fields))


def poisson(z, q, kind=Gaussian, **fields):
    return kind(z, neighboring="add_remove", sampling="poisson", sampling_probability=q, **fields)


def fixed(z, n, m, **fields):
    return Gaussian(z, neighboring="replace", sampling="without_replacement", n_users=n, cohort_size=m, **fields)


def pld(event, count=1):
    return PLDAccountant().compose(event, count)


def divergence(p, q, epsilon, edges):
    """Return the mean of max(0, p - e^epsilon q) by quadrature."""
    return mpmath.quad(lambda x: max(mpmath.mpf(0), p(x) - mpmath.exp(epsilon) * q(x)), edges)


# --- oracle ---
@pytest.mark.parametrize(("n", "m"), WITHOUT_REPLACEMENT)
def test_upper_bounds_of_the_design_page(n, m):
    assert pld(fixed(1.0, n, m), 1000).get_epsilon(1e-6) == pytest.approx(WITHOUT_REPLACEMENT[n, m][1], abs=1e-4)


@pytest.mark.parametrize(("n", "m"), WITHOUT_REPLACEMENT)
def test_lower_bounds_of_the_design_page(n, m):
    # The page's figures round down on plain grids of 1e-6 and 2e-6, which costs T * h / 2 = .0005 and .001.  The
    # figures here are as rigorous, never below the page's, and at most this much above them.
    page, upper = WITHOUT_REPLACEMENT[n, m]
    ours = epsilon_lower_bound(fixed(1.0, n, m, count=1000), 1e-6)
    assert page - 1e-4 <= ours <= page + 1.1e-3 < upper
    # The cost of the mixture against the noise is between these; its upper bound is the Poisson pair, in one direction.
    (removed, _) = pld(poisson(1.0, m / n), 1000)._totals()
    assert ours <= removed.epsilon(1e-6) <= ours + 3e-4


def test_a_lower_bound_by_plain_rounding_down_gives_the_page():
    q, step = 20 / 4800, 2e-6
    losses = step * np.arange(math.floor(math.log1p(-q) / step), math.ceil(2.2 / step))
    with np.errstate(divide="ignore"):
        x = 0.5 + np.log1p(np.maximum(np.expm1(losses) / q, -1))
    p = -np.diff((1 - q) * ndtr(-x) + q * ndtr(1 - x), append=0)
    total = loss.convolve([(loss.LossPmf(round(losses[0] / step), np.maximum(p, 0), 0.0), 1000)], step)
    assert total.epsilon(1e-6) == pytest.approx(WITHOUT_REPLACEMENT[4800, 20][0] - 5e-4, abs=1e-4)


def test_two_rounds_without_replacement_cost_more_than_either_pair_shows():
    # design page on sampling without replacement, "Pair": T = 2, q = .02, excess .5
    assert pld(fixed(1.0, 50, 1), 2).get_delta(0.5) == pytest.approx(1.2309e-5, abs=1e-9)
    (removed, _) = pld(poisson(1.0, 0.02), 2)._totals()
    assert removed.delta(0.5) == pytest.approx(1.2169e-5, abs=1e-9)


@pytest.mark.parametrize("z", [0.4, 1.0, 8.0, 300.0])
@pytest.mark.parametrize("count", [1, 30])
def test_plain_gaussian_is_the_closed_form(z, count):
    mu = math.sqrt(count) / z
    closed, grid = pld(plain(z), count), pld(poisson(z, 1.0), count)
    for epsilon in (0.0, mu / 2, mu**2 / 2 + mu, mu**2 / 2 + 4 * mu):
        exact = closed.get_delta(epsilon)
        assert exact == pytest.approx(gaussian_delta(epsilon, mu), rel=1e-6)
        assert exact <= grid.get_delta(epsilon) <= exact * (1 + 1e-4) + 1e-5 * mu / 10 + 2e-10
    for delta in (1e-3, 1e-9, 1e-12, 1e-50, 1e-250):
        exact = closed.get_epsilon(delta)
        assert exact <= grid.get_epsilon(delta) <= exact * 1.001 + 1e-5


@pytest.mark.parametrize(
    ("z", "q", "count"), [(1.0, 0.01, 1), (0.7, 0.3, 30), (30.0, 1e-3, 10_000), (4.0, 1e-9, 10**6)]
)
def test_small_deltas_are_between_renyi_and_the_truth_of_large_ones(z, q, count):
    for event in (poisson(z, q), fixed(z, 10**9, int(1e9 * q))):
        total, renyi = pld(event, count), RDPAccountant().compose(event, count)
        results = {delta: total.get_epsilon(delta) for delta in (1e-7, 1e-9, 1e-11, 1e-12, 1e-14, 1e-40)}
        assert all(a <= b for a, b in itertools.pairwise(results.values()))
        for delta in (1e-9, 1e-12, 1e-14, 1e-40):
            epsilon = results[delta]
            assert epsilon <= renyi.get_epsilon(delta) * (1 + 1e-9)
            if epsilon and delta > 1e-20:
                assert total.get_delta(epsilon) <= delta * (1 + 1e-3)
                assert total.get_delta(epsilon * 0.9) > delta


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 5.5])
def test_tilted_masses_are_not_below_one_release_in_closed_form(epsilon):
    z, q = 1.0, 0.01
    with mpmath.workdps(40):
        x = mpmath.mpf(1) / 2 + mpmath.log(1 + mpmath.expm1(epsilon) / mpmath.mpf(q))
        exact = (1 - mpmath.mpf(q) - mpmath.exp(epsilon)) * mpmath.ncdf(-x) + mpmath.mpf(q) * mpmath.ncdf(1 - x)
    assert exact <= pld(poisson(z, q)).get_delta(epsilon) <= exact * 1.001


@pytest.mark.parametrize("fraction", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("z", [0.6, 1.0, 4.0])
def test_one_round_without_replacement_is_the_closed_form(fraction, z):
    total = pld(fixed(z, 100, int(100 * fraction)))
    with mpmath.workdps(40):
        q, zz = mpmath.mpf(int(100 * fraction)) / 100, mpmath.mpf(z)

        def exact(epsilon):
            x = mpmath.mpf(1) / 2 + zz**2 * mpmath.log(1 + mpmath.expm1(epsilon) / q)
            mixture = (1 - q) * mpmath.ncdf(-x / zz) + q * mpmath.ncdf((1 - x) / zz)
            return float(mixture - mpmath.exp(epsilon) * mpmath.ncdf(-x / zz))

        for epsilon in (1e-6, 0.01, 0.1, 0.5, 2.0):
            assert exact(epsilon) <= total.get_delta(epsilon) <= exact(epsilon) * (1 + 1e-3) + 1e-6


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.02), (0.7, 0.3), (3.0, 0.9)])
def test_one_poisson_round_against_quadrature(z, q):
    total = pld(poisson(z, q))

    def noise(x):
        return mpmath.npdf(x, 0, z)

    def mixture(x):
        return (1 - q) * noise(x) + q * mpmath.npdf(x, 1, z)

    for epsilon in (0.05, 0.3, 1.0):
        # The integral is split where the densities cross, so that the integrand is smooth on each piece.
        up = 0.5 + z**2 * math.log1p(math.expm1(epsilon) / q)
        removed = divergence(mixture, noise, epsilon, [up, up + z, up + 4 * z, up + 15 * z])
        added = mpmath.mpf(0)
        if math.expm1(-epsilon) > -q:
            down = 0.5 + z**2 * math.log1p(math.expm1(-epsilon) / q)
            added = divergence(noise, mixture, epsilon, [down - 15 * z, down - 4 * z, down - z, down])
        exact = float(max(removed, added))
        assert exact <= total.get_delta(epsilon) <= exact * (1 + 1e-3) + 1e-7


@pytest.mark.parametrize("z", [0.5, 2.0])
def test_poisson_sampling_of_a_user_who_is_replaced_covers_every_direction(z):
    """Two vectors of norm 1/2 at some angle are compared in the plane; the grid is off by 0.001 in mass."""
    x = np.linspace(-7 * z - 1, 7 * z + 1, 1201)
    cell = (x[1] - x[0]) ** 2 / (2 * math.pi * z**2)

    def density(u, v):
        return np.exp(-((x[:, None] - u) ** 2 + (x[None, :] - v) ** 2) / (2 * z**2)) * cell

    for q in (0.05, 0.5):
        event = Gaussian(z, neighboring="replace", sampling="poisson", sampling_probability=q)
        ours, renyi = pld(event), RDPAccountant().compose(event)
        assert ours.get_epsilon(1e-6) == pld(fixed(z, 100, int(100 * q))).get_epsilon(1e-6)
        one = (1 - q) * density(0, 0) + q * density(0.5, 0)
        for angle in (math.pi, 2.0, 1.0):
            other = (1 - q) * density(0, 0) + q * density(math.cos(angle) / 2, math.sin(angle) / 2)
            for epsilon in (0.0, 0.05, 0.3):
                exact = np.maximum(one - math.exp(epsilon) * other, 0).sum()
                assert exact * 0.999 <= ours.get_delta(epsilon) <= renyi.get_delta(epsilon)


def test_no_lower_bound_is_known_for_poisson_sampling_of_a_user_who_is_replaced():
    with pytest.raises(UnsupportedEventError, match="no worst case is known here"):
        epsilon_lower_bound(Gaussian(1.0, neighboring="replace", sampling="poisson", sampling_probability=0.1), 1e-6)


@pytest.mark.parametrize(("z", "q", "count"), [(1.0, 0.01, 1000), (0.8, 0.2, 10), (2.0, 0.05, 500), (1.0, 1.0, 20)])
def test_poisson_agrees_with_dp_accounting(z, q, count):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant as Peer

    peer = Peer().compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), count)
    ours = pld(poisson(z, q), count)
    for delta in (1e-4, 1e-6, 1e-8):
        assert ours.get_epsilon(delta) == pytest.approx(peer.get_epsilon(delta), abs=1e-3)


def test_poisson_agrees_with_prv_accountant():
    prv = pytest.importorskip("prv_accountant", reason="the comparison needs prv-accountant")
    z, q, count = 2.0, 0.05, 500
    peer = prv.PRVAccountant(
        prvs=prv.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=z),
        max_self_compositions=count,
        eps_error=1e-3,
        delta_error=1e-10,
    )
    low, _, high = peer.compute_epsilon(delta=1e-6, num_self_compositions=[count])
    assert low - 1e-3 <= pld(poisson(z, q), count).get_epsilon(1e-6) <= high + 1e-3


# --- invariants ---
@given(st.integers(0, 2**32 - 1), st.floats(1e-5, 0.5), st.integers(-40, 40))
@example(0, 0.5, -31)
@example(0, 0.5, -40)
def test_spreading_keeps_both_masses_and_never_lowers_delta(seed, step, start):
    rng = np.random.default_rng(seed)
    n = 6
    losses = step * (start + np.arange(n) + rng.random(n))
    p = rng.dirichlet(np.ones(n))
    q = p * np.exp(-losses)
    ends = loss.spread(p, q, start, step)
    grid = step * (start + np.arange(n + 1))
    assert ends.sum() == pytest.approx(1)
    # Mass moves up by the error of the masses, which lowers the Q-mass.
    missing, max_missing = (
        q.sum() - (ends * np.exp(-grid)).sum(),
        (loss.MASSES_ERROR * (p + q) * np.exp(-grid[:-1])).sum(),
    )
    assert -1e-9 * q.sum() <= missing <= max_missing + 1e-9 * q.sum()
    for epsilon in np.linspace(grid[0] - step, grid[-1] + step, 17):
        exact = (p * np.maximum(0, -np.expm1(epsilon - losses))).sum()
        assert (ends * np.maximum(0, -np.expm1(epsilon - grid))).sum() >= exact * (1 - 1e-6) - 1e-12


@settings(max_examples=6)
@given(st.floats(0.8, 20), st.integers(2, 1000), st.floats(0.001, 1), st.integers(1, 100), st.floats(1e-8, 0.1))
def test_between_the_lower_bound_and_renyi(z, n, share, count, delta):
    m = max(1, int(share * n))
    for event in (fixed(z, n, m, count=count), poisson(z, m / n, count=count), plain(z, count=count)):
        epsilon = pld(event).get_epsilon(delta)
        assert epsilon_lower_bound(event, delta) <= epsilon
        # delta includes 1e-10 for rounding, which matters at a delta of 1e-8
        assert epsilon <= RDPAccountant().compose(event).get_epsilon(delta * 0.97) * (1 + 1e-6) + 1e-3


@settings(max_examples=6)
@given(st.floats(0.8, 20), st.integers(2, 1000), st.floats(0.001, 1), st.integers(1, 100), st.floats(1e-8, 0.1))
def test_without_replacement_costs_at_least_the_poisson_pair(z, n, share, count, delta):
    m = max(1, int(share * n))
    ours, (removed, _) = pld(fixed(z, n, m), count), pld(poisson(z, m / n), count)._totals()
    assert ours.get_epsilon(delta) >= removed.epsilon(delta) - 1e-4


@settings(max_examples=10)
@given(st.floats(0.02, 3), st.integers(1, 60), st.floats(1e-8, 0.1))
def test_never_above_pure_composition(epsilon, count, delta):
    for event in (
        CentralRelease("m", epsilon, count=count),
        Laplace(1 / epsilon, neighboring="add_remove", sampling="none", count=count),
        poisson(1 / epsilon, 0.1, Laplace, count=count),
    ):
        assert pld(event).get_epsilon(delta) <= PureAccountant().compose(event).get_epsilon()


@pytest.mark.parametrize("sampled", [poisson, lambda z, q: fixed(z, 1000, int(1000 * q))])
def test_monotone_in_everything(sampled):
    def epsilon(z=1.0, q=0.02, count=100, delta=1e-6):
        return pld(sampled(z, q), count).get_epsilon(delta)

    base = epsilon()
    assert epsilon(z=1.01) < base < epsilon(z=0.99)
    assert epsilon(q=0.019) < base < epsilon(q=0.021)
    assert epsilon(count=99) < base < epsilon(count=101)
    assert epsilon(delta=1.1e-6) < base < epsilon(delta=0.9e-6)
    total = pld(sampled(1.0, 0.02), 100)
    deltas = [total.get_delta(x) for x in np.linspace(0, 3, 50)]
    assert (np.diff(deltas) <= 0).all()


def test_epsilon_undoes_delta():
    total = pld(fixed(1.0, 4800, 20), 1000)
    for delta in (0.05, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15):
        epsilon = total.get_epsilon(delta)
        assert delta * (1 - 1e-5) <= total.get_delta(epsilon) <= delta * (1 + 1e-9)


def test_different_events_add_up_like_one_gaussian():
    # The values 1/z^2 of plain Gaussians add up.
    mixed = PLDAccountant().compose(plain(2.0), 5).compose(plain(0.8)).compose(plain(11.0), 40)
    mu = math.sqrt(5 / 4 + 1 / 0.64 + 40 / 121)
    for epsilon in (0.5, 3.0, 9.0):
        exact = gaussian_delta(epsilon, mu)
        assert exact <= mixed.get_delta(epsilon) <= exact * (1 + 1e-4) + 1e-9


def test_millions_of_uses_stay_above_the_closed_form():
    mu = math.sqrt(5e7) / 2e4
    total = pld(plain(2e4), 50_000_000)
    for epsilon in (0.1, 0.5, 1.0):
        exact = gaussian_delta(epsilon, mu)
        assert exact <= total.get_delta(epsilon) <= exact * (1 + 1e-3)


def test_later_events_are_not_forgotten():
    accountant = PLDAccountant().compose(plain(2.0))
    before = accountant.get_epsilon(1e-6)
    assert accountant.compose(plain(2.0)).get_epsilon(1e-6) > before


@pytest.mark.parametrize("z", [pytest.param(0.1, marks=pytest.mark.nightly), 1e4])
def test_absurd_parameters_still_give_an_upper_bound(z):
    for event in (plain(z), poisson(z, 1e-5), fixed(z, 10**6, 1)):
        epsilon = pld(event, 100).get_epsilon(1e-6)
        assert math.isfinite(epsilon)
        assert epsilon >= epsilon_lower_bound(Gaussian(**(vars(event) | {"count": 100})), 1e-6)


def test_a_delta_below_that_of_the_largest_loss_is_not_free():
    """The best tilt there covers only the largest losses, and none near the result."""
    for n, pure, delta in ((33, 0.005032257583056079, 6.074776909580365e-11), (20, 1.0, 1e-7), (40, 0.3, 1e-12)):
        release = CentralRelease("m", pure, neighboring="replace", sampling="none", count=n)
        epsilon = pld(release).get_epsilon(delta)
        ones = np.arange(n + 1)
        masses = stats.binom.pmf(ones, n, 1 / (1 + math.exp(-pure)))

        def exact(x, masses=masses, losses=pure * (2 * ones - n)):
            return float((masses * np.maximum(0.0, -np.expm1(np.minimum(0.0, x - losses)))).sum())

        assert exact(epsilon) <= delta < exact(epsilon * 0.99)
        assert pld(release).get_delta(epsilon) <= delta * 1.01


def test_a_grid_so_coarse_that_all_mass_lies_far_above_the_answer_divides_by_nothing():
    # Between losses 50 and 100 only the bound on the mass outside of the grid changes.
    total = loss.TotalLoss(50.0, 50.0, np.array([0.25, 0.0, 0.25]), 0.0, outside_mass=0.1, tilt=0.01)
    at_50, at_100 = total.delta(50.0), total.delta(100.0)
    for share in (0.1, 0.5, 0.9):
        epsilon = total.epsilon(at_100 + share * (at_50 - at_100))
        assert 50 < epsilon <= 100
        assert total.delta(epsilon) <= at_100 + share * (at_50 - at_100)


@pytest.mark.parametrize("tilt", [0.0, 0.25])
@pytest.mark.parametrize(("first", "infinity"), [(-3.0, 0.0), (0.5, 1e-4)])
def test_deltas_of_many_epsilons_equal_the_deltas_of_single_ones(tilt, first, infinity):
    masses = np.random.default_rng(1).dirichlet(np.ones(60))
    total = loss.TotalLoss(
        first, 0.1, masses, infinity, outside_mass=1e-13, slack=1e-12, tilt=tilt, log_scale=-4 * tilt
    )
    # Some are losses of the grid, some lie between them, and some are outside of it.
    epsilons = np.sort(np.concatenate([np.linspace(0, 8, 41), first + 0.1 * np.arange(40, 60)]))
    expected = [total.delta(epsilon) for epsilon in epsilons]
    np.testing.assert_allclose(total.deltas(epsilons), expected, rtol=1e-12, atol=1e-15)
    assert min(expected) < 1e-3 < max(expected)
    assert total.deltas(np.array([1000.0])) == total.delta(1000.0)  # e^1000 is no float


# --- bad inputs ---
def test_lower_bound_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="event must be Gaussian, got CentralRelease"):
        epsilon_lower_bound(CentralRelease("m", 1.0), 1e-6)
    other = Gaussian(1, neighboring="add_remove", sampling="without_replacement", n_users=10, cohort_size=1)
    with pytest.raises(UnsupportedEventError, match="no theorem"):
        epsilon_lower_bound(other, 1e-6)
    with pytest.raises(ValueError, match="delta must be less than 1"):
        epsilon_lower_bound(plain(1.0), 1.0)
