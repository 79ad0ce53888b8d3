"""The deltas of releases, and their distances from the described mechanisms, are part of the cost."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.accountants import ALL

from fastfedrec.accounting import (
    AdvancedAccountant,
    CentralRelease,
    Gaussian,
    Ledger,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ZCDPAccountant,
)

# ---- releases with a delta of their own -----------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", [PureAccountant, AdvancedAccountant, RDPAccountant, PLDAccountant])
def test_a_releases_own_delta_is_paid_for(accountant):
    pure = CentralRelease("m", 0.3, neighboring="replace")
    leaky = CentralRelease("m", 0.3, delta=1e-8, neighboring="replace")
    with_own, without = accountant().compose(leaky, 50), accountant().compose(pure, 50)
    assert with_own.get_epsilon(1e-5) == pytest.approx(without.get_epsilon(1e-5 - 50e-8), rel=1e-6)
    assert with_own.get_epsilon(1e-5) >= without.get_epsilon(1e-5)
    # The releases use up the run's delta.
    assert with_own.get_epsilon(49e-8) == math.inf
    for epsilon in (0.0, 1.0, 20.0):
        assert with_own.get_delta(epsilon) == pytest.approx(without.get_delta(epsilon) + 50e-8, rel=1e-6)


def test_exact_composition_of_two_releases_with_delta():
    # Enumeration: each release fails openly with probability delta, and is randomized response otherwise.
    epsilon, delta, at = 0.7, 0.01, 1.0
    keep = 1 / (1 + math.exp(-epsilon))
    p = [delta, 0.0, (1 - delta) * keep, (1 - delta) * (1 - keep)]
    q = [0.0, delta, (1 - delta) * (1 - keep), (1 - delta) * keep]
    pairs = list(zip(p, q, strict=True))
    true = sum(max(a * b - math.exp(at) * c * d, 0) for a, c in pairs for b, d in pairs)
    release = CentralRelease("m", epsilon, delta=delta, neighboring="replace")
    for accountant in (PureAccountant, PLDAccountant):
        assert accountant().compose(release, 2).get_delta(at) >= true
    assert PLDAccountant().compose(release, 2).get_delta(at) <= true + 2 * delta**2 + delta
    # Control: without the releases' own delta the figure would be too small.
    pure = CentralRelease("m", epsilon, neighboring="replace")
    assert PLDAccountant().compose(pure, 2).get_delta(at) < true


SCHEMES = {
    "poisson": {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": 0.02},
    "fixed": {"neighboring": "replace", "sampling": "without_replacement", "n_users": 200, "cohort_size": 4},
}


@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sampling_amplifies_a_releases_own_delta(accountant, scheme):
    release = CentralRelease("m", 0.8, delta=1e-8, count=400, **SCHEMES[scheme])
    lost = 400 * 0.02 * 1e-8
    pure = accountant().compose(replace(release, delta=0.0))
    account = accountant().compose(release)
    assert account.get_epsilon(1e-6) == pytest.approx(pure.get_epsilon(1e-6 - lost), rel=1e-9)
    assert account.get_epsilon(lost * 0.999) == math.inf
    for epsilon in (0.0, 0.5, 3.0):
        assert account.get_delta(epsilon) == pytest.approx(pure.get_delta(epsilon) + lost, rel=1e-6)


def test_a_run_of_sampled_releases_with_delta():
    release = CentralRelease(
        "histogram", 0.8, delta=1e-8, count=400, **SCHEMES["poisson"] | {"sampling_probability": 0.005}
    )
    assert round(PLDAccountant().compose(release).get_epsilon(4e-6), 4) == 0.4505
    ledger = Ledger(delta=4e-6)
    ledger.record(release)
    assert ledger.epsilon("public") < math.inf


def failing(epsilon, delta):
    """Return a release that shows the user's data with probability delta, else randomized response; and one without."""
    truth_probability = 1 / (1 + math.exp(-epsilon))
    return [delta, (1 - delta) * truth_probability, (1 - delta) * (1 - truth_probability)], [
        0.0,
        (1 - delta) * (1 - truth_probability),
        (1 - delta) * truth_probability,
    ]


def hockey_stick(p, q, epsilon):
    return sum(max(a - math.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 3), st.floats(1e-6, 0.2), st.integers(1, 20), st.floats(0, 3))
def test_a_sampled_release_with_delta_is_at_least_the_truth(epsilon, delta, cohort_size, at):
    """A sampled release is the mixture with a release without the user, or with another user instead."""
    q = cohort_size / 20
    used, unused = failing(epsilon, delta)
    # Use and absence are revealed equally often: (epsilon, delta) in both directions.
    used, unused = [*used, 0.0], [unused[0], *unused[1:], delta]
    sampled = [q * a + (1 - q) * b for a, b in zip(used, unused, strict=True)]
    schemes = (
        {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": q},
        {"neighboring": "replace", "sampling": "without_replacement", "n_users": 20, "cohort_size": cohort_size},
    )
    for scheme in schemes:
        release = CentralRelease("m", epsilon, delta=delta, **scheme)
        for accountant in (PureAccountant, PLDAccountant):
            account = accountant().compose(release)
            for one, other in ((sampled, unused), (unused, sampled)):
                assert hockey_stick(one, other, at) <= account.get_delta(at) * (1 + 1e-9)
        assert PureAccountant().compose(release).get_delta(epsilon) == pytest.approx(q * delta, rel=1e-9)
    # Control: half of that delta is below the true value, because the release shows the user's data with that
    # probability.
    assert hockey_stick(sampled, unused, epsilon) > q * delta / 2


# ---- releases at a distance from what they are said to be -----------------------------------------------------------

RR = CentralRelease("m", 0.7, neighboring="replace")


@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize(("distance", "delta"), [(1e-12, 1e-5), (1e-8, 1e-3)])
def test_a_distance_is_paid_for_at_the_epsilon_of_the_whole_run(accountant, distance, delta):
    off, ideal = accountant().compose(replace(RR, distance=distance), 5), accountant().compose(RR, 5)
    for epsilon in (0.0, 1.0, 3.0):
        taken = (1 + math.exp(epsilon)) * 5 * distance
        assert off.get_delta(epsilon) == pytest.approx(ideal.get_delta(epsilon) + taken, rel=1e-6)
    epsilon = off.get_epsilon(delta)
    remaining = delta - (1 + math.exp(epsilon)) * 5 * distance
    assert 0 < remaining < delta
    assert epsilon == pytest.approx(ideal.get_epsilon(remaining), rel=1e-6)
    assert epsilon >= ideal.get_epsilon(delta)
    # The delta is below the share of the distance at an epsilon of 0.
    assert off.get_epsilon(9 * distance) == math.inf


def test_a_distance_that_no_epsilon_can_pay_for_is_infinite():
    assert PureAccountant().compose(replace(RR, epsilon=5.0, distance=1e-8)).get_epsilon(1e-6) == math.inf
    assert PLDAccountant().compose(replace(RR, epsilon=30.0, distance=1e-7)).get_epsilon(1e-6) == math.inf
    loud = Gaussian(0.01, neighboring="replace", sampling="none", distance=1e-30)
    assert ZCDPAccountant().compose(loud).get_epsilon(1e-6) == math.inf


def test_exact_composition_of_two_releases_at_a_distance():
    # Enumeration: with probability t the sampler returns a third output, which the neighbour's sampler never returns.
    epsilon, distance, at = 0.7, 0.01, 1.0
    keep = 1 / (1 + math.exp(-epsilon))
    p = [keep - distance, 1 - keep, distance]
    q = [1 - keep, keep, 0.0]
    pairs = list(zip(p, q, strict=True))
    true = sum(max(a * b - math.exp(at) * c * d, 0) for a, c in pairs for b, d in pairs)
    for accountant in (PureAccountant, PLDAccountant):
        assert accountant().compose(replace(RR, distance=distance), 2).get_delta(at) >= true
    # Control: without the distance the figure would be too small.
    assert PLDAccountant().compose(RR, 2).get_delta(at) < true


@pytest.mark.parametrize("bad", [-1e-9, 1.1, math.nan])
def test_bad_distance_of_a_release(bad):
    with pytest.raises(ValueError, match="distance must be"):
        replace(RR, distance=bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.0, math.nan])
def test_bad_delta_of_a_release(bad):
    with pytest.raises(ValueError, match="delta must be"):
        CentralRelease("m", 1.0, delta=bad)
