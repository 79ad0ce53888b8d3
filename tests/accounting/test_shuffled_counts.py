"""The privacy loss of shuffled counts with fake messages, compared with enumerations of all counts."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fastfedrec.accounting import (
    Gaussian,
    Ledger,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledCounts,
    UnsupportedEventError,
    ZCDPAccountant,
    gaussian_mu,
)
from fastfedrec.accounting._poisson_counts import poisson_masses

TARGETS = (0.0, 0.4, 1.2, 2.0)


def account(mean, n_messages, neighboring="replace", n_users=1, **fields):
    return PLDAccountant().compose(
        ShuffledCounts("counts", mean / n_users, n_messages, n_users, neighboring=neighboring, **fields)
    )


def enumerated(mean, before, after, target, n=40):
    """Return delta of all counts for two users' numbers of messages in each cell, by a sum over all outcomes."""
    masses = []
    for messages in (before, after):
        cells = [stats.poisson.pmf(np.arange(n) - shift, mean) for shift in messages]
        masses.append(functools.reduce(np.multiply.outer, cells))
    return float(np.maximum(masses[0] - math.exp(target) * masses[1], 0).sum())


def worst(mean, users, neighboring, target):
    """Return the largest delta over pairs of users, of which each has its messages in the given cells."""
    if neighboring == "zero_out":
        pairs = [(user, (0,) * len(user)) for user in users]
    else:
        pairs = [(one + (0,) * len(other), (0,) * len(one) + other) for one in users for other in users]
    return max(enumerated(mean, *pair, target) for one, other in pairs for pair in ((one, other), (other, one)))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_messages", "users", "neighboring"),
    [
        (1, [(1,)], "zero_out"),
        (1, [(1,)], "replace"),
        (2, [(1, 1)], "replace"),
        (4, [(2,), (1, 1, 1, 1)], "zero_out"),
        (4, [(2,)], "replace"),
    ],
)
@pytest.mark.parametrize("mean", [4.0, 9.0])
def test_delta_is_the_one_of_all_counts(n_messages, users, neighboring, mean):
    for target in TARGETS:
        delta = account(mean, n_messages, neighboring).get_delta(target)
        exact = worst(mean, users, neighboring, target)
        # (4, "replace") also has pairs of more cells than are enumerated here.
        assert exact <= delta * (1 + 1e-9) + 1e-15
        assert (n_messages, neighboring) == (4, "replace") or delta <= 1.06 * exact + 1e-9


def test_users_who_share_cells_are_no_easier_to_distinguish():
    for target in TARGETS:
        delta = account(6.0, 4).get_delta(target)
        for before, after in [((2, 0), (1, 1)), ((2,), (1,)), ((1, 1, 0), (0, 1, 1)), ((1, 1, 1), (2, 0, 0))]:
            assert enumerated(6.0, before, after, target) <= delta


def test_masses_are_the_ones_of_scipy():
    for mean in (0.3, 7.5, 900.0):
        low, high = max(0, int(mean - 12 * math.sqrt(mean))), int(mean + 12 * math.sqrt(mean) + 30)
        np.testing.assert_allclose(
            poisson_masses(mean, low, high), stats.poisson.pmf(np.arange(low, high + 1), mean), rtol=1e-10
        )


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_messages", "epsilon"), [(45, 2.0), (45, 4.0)])
def test_many_fakes_cost_what_gaussian_noise_costs(n_messages, epsilon):
    # A change by 1 of 2 n cells with noise of the variance `mean` has mu^2 = 2 n / mean.
    mean = 2 * n_messages / gaussian_mu(epsilon, 1e-6) ** 2
    assert epsilon * 0.995 < account(mean, n_messages).get_epsilon(1e-6) < epsilon * 1.03
    # With 10% fewer fakes the equality does not hold.
    assert account(0.9 * mean, n_messages).get_epsilon(1e-6) > epsilon * 1.03


@settings(max_examples=8, deadline=None)
@given(mean=st.floats(30, 2_000), n_messages=st.integers(1, 12))
def test_more_fakes_fewer_messages_and_no_data_cost_less(mean, n_messages):
    cost = account(mean, n_messages).get_delta(1.0)
    assert account(2 * mean, n_messages).get_delta(1.0) <= cost
    assert account(mean, n_messages + 1).get_delta(1.0) >= cost
    assert account(mean, n_messages, "zero_out").get_delta(1.0) <= cost


def test_only_honest_users_count():
    event = ShuffledCounts("counts", 0.5, 4, 1_000, 0.5)
    assert event.n_honest_users == 500
    half = PLDAccountant().compose(event).get_epsilon(1e-6)
    assert half == account(250.0, 4).get_epsilon(1e-6)
    assert half > 1.3 * account(500.0, 4).get_epsilon(1e-6)


def test_views_need_the_shuffler():
    ledger = Ledger(1e-6)
    event = ShuffledCounts("counts", 0.5, 4, 1_000, neighboring="zero_out")
    ledger.record(event)
    replaced = account(500.0, 4, n_users=1_000).get_epsilon(1e-6)
    assert ledger.epsilon("shuffled_server") == ledger.epsilon("public") == replaced
    assert math.isinf(ledger.epsilon("server"))
    assert math.isinf(ledger.epsilon("key_holder"))
    assert math.isinf(ledger.epsilon("public", 0.0))  # a count of 0 excludes a user with a message there
    assert "sees the sender" in event._exposure("server")


def test_dropouts_take_their_fakes_along():
    ledger = Ledger(1e-6)
    event = ShuffledCounts("counts", 0.5, 4, 1_000, 0.9)
    ledger.record(event)
    ledger.amend(event, 600)
    # All 100 dishonest users may be among the 600.
    assert [(one.n_users, one.n_honest_users) for one in ledger.events] == [(600, 500)]
    ledger.amend(next(iter(ledger.events)), 50)
    assert math.isinf(ledger.epsilon("public"))


def test_shards_behind_one_shuffler_join_their_crowds_and_distances():
    ledgers = [Ledger(1e-6) for _ in range(2)]
    for ledger, n_users in zip(ledgers, (300, 700), strict=True):
        ledger.record(ShuffledCounts("counts", 0.5, 4, n_users, distance=n_users * 2.0**-60))
    (joined,) = Ledger.of_shards(ledgers).events
    assert (joined.n_users, joined.distance) == (1_000, 1_000 * 2.0**-60)


def test_shards_with_varying_crowds_join_their_largest_distances():
    ledgers = [Ledger(1e-6) for _ in range(2)]
    for ledger in ledgers:
        for n_users in (300, 700):
            ledger.record(ShuffledCounts("counts", 0.5, 4, n_users, distance=n_users * 2.0**-40))
    joined = Ledger.of_shards(ledgers).events
    assert [(event.n_users, event.distance) for event in joined] == [(600, 1_400 * 2.0**-40)]
    assert joined.total() == 2


def test_a_rate_beyond_the_accountant_counts_as_its_largest_mean():
    costs = []
    for rate in (2.0**16, 1e308):
        account = PLDAccountant()
        account.compose(ShuffledCounts("counts", rate, 4, 10**6))
        costs.append(account.get_epsilon(1e-6))
    assert costs[0] == costs[1] < 1


def test_compositions_add_up():
    both = PLDAccountant().compose(ShuffledCounts("counts", 500.0, 4, 1))
    both.compose(Gaussian(5.0, neighboring="replace", sampling="none"))
    # Many fakes are nearly Gaussian noise with mu^2 = 8 / 500, and squares of mu add up.
    expected = PLDAccountant().compose(Gaussian((8 / 500 + 1 / 25) ** -0.5, neighboring="replace", sampling="none"))
    assert both.get_epsilon(1e-6) == pytest.approx(expected.get_epsilon(1e-6), rel=0.03)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fake_rate": 0.0}, "fake_rate must be greater than 0"),
        ({"n_messages": 0}, "n_messages must be at least 1"),
        ({"n_messages": 2_000}, "n_messages must be at most 1024"),
        ({"honest_fraction": 1.5}, "honest_fraction must be at most 1.0"),
        ({"neighboring": "add_remove"}, "neighboring must be one of"),
        ({"trust": "local"}, "trust must be one of"),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        ShuffledCounts(**{"mechanism": "counts", "fake_rate": 0.5, "n_messages": 4, "n_users": 100} | fields)


def test_other_accountants_have_no_finite_bound():
    event = ShuffledCounts("counts", 0.5, 4, 1_000)
    # A count of 0 excludes a user with a message there, so no divergence or pure epsilon is finite.
    assert math.isinf(RDPAccountant().compose(event).get_epsilon(1e-6))
    for accountant in (PureAccountant(), ZCDPAccountant()):
        with pytest.raises(UnsupportedEventError, match="no pure epsilon"):
            accountant.compose(event)


@pytest.mark.parametrize("mean", [1e-300, 1e-3, 0.5])
def test_too_few_fakes_hide_nothing(mean):
    assert math.isinf(account(mean, 45).get_epsilon(1e-6))


def test_a_huge_mean_counts_as_a_smaller_one():
    assert account(1e9, 4).get_epsilon(1e-6) == account(2.0**16, 4).get_epsilon(1e-6)


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_an_attack_reaches_the_claim_only_with_half_of_the_fakes():
    # The best test of one user against none is a threshold on the sum of its cells, which has a Poisson distribution.
    mean, n_messages, delta = 60.0, 4, 1e-3
    claimed = account(mean, n_messages, "zero_out").get_epsilon(delta)

    def lower_bound(fakes):
        counts = np.arange(int(4 * n_messages * fakes) + 50)
        present, absent = (stats.poisson.sf(counts - shift, n_messages * fakes) for shift in (n_messages, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nanmax(np.where(absent > 0, np.log((present - delta) / absent), np.nan))

    assert 0.75 * claimed < lower_bound(mean) <= claimed
    assert lower_bound(mean / 2) > claimed
