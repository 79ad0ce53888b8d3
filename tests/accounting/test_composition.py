import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.accountants import ALL

from fastfedrec import accounting
from fastfedrec.accounting import (
    ZCDP,
    AdvancedAccountant,
    CentralRelease,
    Composed,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    LocalReports,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledReports,
    Unprotected,
    UnsupportedEventError,
    ZCDPAccountant,
)

PURE = CentralRelease("exponential mechanism", 0.1, neighboring="replace")
NOISE = Gaussian(2.0, neighboring="replace", sampling="none")
REPORTS = LocalReports("binary response", 0.5, 10, 1000)


def randomized_response_delta(epsilon, uses, target):
    """Return the exact delta of `uses` randomized responses: the number of truthful answers is binomial."""
    truth_probability = 1 / (1 + math.exp(-epsilon))
    return sum(
        math.comb(uses, k)
        * max(
            0.0,
            truth_probability**k * (1 - truth_probability) ** (uses - k)
            - math.exp(target) * truth_probability ** (uses - k) * (1 - truth_probability) ** k,
        )
        for k in range(uses + 1)
    )


def test_every_accountant_is_in_the_list_of_these_tests():
    exported = {getattr(accounting, name) for name in accounting.__all__ if name.endswith("Accountant")}
    assert exported - {accounting.Accountant} == set(ALL), "ALL of tests/support/accountants.py lists all of them"


# --- oracle ---


@pytest.mark.parametrize(("rho", "epsilon"), [(0.00043, 0.1), (0.0306, 1), (0.551, 5), (1.783, 10)])
def test_zcdp_figures_of_the_design_page(rho, epsilon):
    # design page on privacy, section "Accounting", at delta = 1e-5
    event = ZCDP("discrete Gaussian", rho, neighboring="replace", sampling="none")
    assert ZCDPAccountant().compose(event).get_epsilon(1e-5) == pytest.approx(epsilon, rel=5e-3)


@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize("uses", [1, 7, 40])
def test_every_accountant_errs_upward_on_randomized_response(accountant, uses):
    events = accountant().compose(LocalReports("binary response", 0.4, uses, 100))
    for target in (0.0, 0.3, 1.0, 3.0):
        exact = randomized_response_delta(0.4, uses, target)
        assert events.get_delta(target) >= exact - 1e-15
    for delta in (0.3, 1e-3, 1e-7):
        assert randomized_response_delta(0.4, uses, events.get_epsilon(delta)) <= delta


@pytest.mark.parametrize("uses", [1, 7, 40])
def test_pld_of_pure_mechanisms_is_nearly_exact(uses):
    events = PLDAccountant().compose(LocalReports("binary response", 0.4, uses, 100))
    for target in (0.0, 0.3, 1.0, 3.0):
        assert events.get_delta(target) == pytest.approx(randomized_response_delta(0.4, uses, target), abs=3e-5)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.5, 1.0, 36.0, 38.0, 50.0, 699.0, 701.0, 745.0, 1e6, 1e300])
@pytest.mark.parametrize("rate", [1e-300, 1e-17, 1e-16, 1e-9, 0.01, 0.999, 1.0])
def test_sampled_pure_releases_are_not_below_the_truth_and_hardly_above(epsilon, rate):
    sampling = {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": rate}
    with mpmath.workdps(700):
        e = mpmath.mpf(epsilon)
        # log(1 + q (e^epsilon - 1)), and its other form if e^epsilon has too many digits
        exact = (
            mpmath.log1p(rate * mpmath.expm1(e))
            if epsilon < 1000
            else e + mpmath.log(rate + (1 - mpmath.mpf(rate)) * mpmath.exp(-e))
        )
        cost = PureAccountant().compose(CentralRelease("m", epsilon, **sampling)).get_epsilon()
        assert exact <= cost <= exact * (1 + mpmath.mpf(1e-11)) + 5e-324
        assert cost <= epsilon


@pytest.mark.parametrize("noise", [0.1, 0.3, 3.0, 1e-300, 1e300, 5e-324])
def test_laplace_costs_at_least_the_inverse_of_its_scale(noise):
    cost = PureAccountant().compose(Laplace(noise, neighboring="replace", sampling="none", count=7)).get_epsilon()
    assert cost == math.inf or Fraction(cost) >= 7 / Fraction(noise)
    assert cost == math.inf or cost <= 7 / noise * (1 + 1e-15)


def zcdp_oracle(rho, delta):
    """Return the minimum over alpha, at which the derivative is 0."""
    with mpmath.workdps(60):
        rho, delta = mpmath.mpf(rho), mpmath.mpf(delta)
        low, high = mpmath.mpf(10) ** -170, mpmath.mpf(10) ** 170
        for _ in range(400):
            x = mpmath.sqrt(low * high)
            low, high = (low, x) if rho * x * x + mpmath.log(delta) + mpmath.log1p(x) > 0 else (x, high)
        alpha_less_1 = high
        return (
            rho * (1 + alpha_less_1)
            + mpmath.log(alpha_less_1 / (1 + alpha_less_1))
            - mpmath.log(delta * (1 + alpha_less_1)) / alpha_less_1
        )


@given(
    rho=st.sampled_from([3e-24, 1e-9, 1e100, 1e300]) | st.floats(-4, 4).map(lambda x: 10**x),
    delta=st.sampled_from([1e-300, 1e-12, 0.9]) | st.floats(-9, -0.3).map(lambda x: 10**x),
)
def test_zcdp_is_not_below_its_minimum_and_hardly_above(rho, delta):
    # A minimum below 0 means that epsilon is 0.
    exact = max(zcdp_oracle(rho, delta), 0)
    event = ZCDP("z", rho, neighboring="replace", sampling="none")
    cost = ZCDPAccountant().compose(event).get_epsilon(delta)
    if -math.expm1(-rho) < delta**2:
        # The total variation itself is below delta, so epsilon is 0.
        assert cost == 0
    else:
        assert exact <= cost <= exact * (1 + 1e-9)
        assert ZCDPAccountant().compose(event).get_delta(cost) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize(
    "event",
    [
        CentralRelease("m", 1e300, neighboring="replace"),
        CentralRelease("m", 1e300, neighboring="replace", count=10**12),
        CentralRelease("m", 1e-300, neighboring="replace", count=10**12),
        LocalReports("m", 1e200, 10**12, 10**12),
    ],
)
def test_extreme_pure_events_end_in_a_figure(accountant, event):
    for delta in (1e-300, 1e-6, 0.9):
        cost = accountant().compose(event, 10**6).get_epsilon(delta)
        assert 0 <= cost <= PureAccountant().compose(event, 10**6).get_epsilon()
    for epsilon in (0.0, 1.0, 1e300):
        assert 0 <= accountant().compose(event, 10**6).get_delta(epsilon) <= 1


@pytest.mark.parametrize(
    "sampling",
    [
        {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": 0.125},
        {"neighboring": "replace", "sampling": "without_replacement", "n_users": 80, "cohort_size": 10},
    ],
)
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0, 800.0])
def test_amplification_of_pure_mechanisms(sampling, epsilon):
    amplified = PureAccountant().compose(CentralRelease("m", epsilon, **sampling)).get_epsilon()
    if epsilon < 100:
        assert math.expm1(amplified) == pytest.approx(0.125 * math.expm1(epsilon), rel=1e-9)
    assert epsilon + math.log(0.125) <= amplified <= epsilon
    laplace = PureAccountant().compose(Laplace(1 / epsilon, **sampling)).get_epsilon()
    assert laplace == pytest.approx(amplified)


# --- invariants ---


def test_pure_epsilons_add():
    mixed = Composed((PURE, Composed((PURE, REPORTS), count=3)), count=2)
    expected = 2 * (Fraction(1, 10) + 3 * (Fraction(1, 10) + 5))
    assert PureAccountant().compose(mixed, 5).get_epsilon() == pytest.approx(float(5 * expected))
    shuffled = ShuffledReports("binary response", 0.5, 10, 1000)
    # Shuffled reports keep their local guarantee.
    assert PureAccountant().compose(shuffled).get_epsilon() == 5


@pytest.mark.parametrize("accountant", ALL[1:])
def test_composed_events_count_like_single_ones(accountant):
    events = (PURE, REPORTS) if accountant is AdvancedAccountant else (PURE, REPORTS, NOISE)
    nested = accountant().compose(Composed(events, count=4), 2)
    flat = accountant()
    for event in events:
        flat.compose(event, 5).compose(event, 3)
    assert nested.get_epsilon(1e-6) == pytest.approx(flat.get_epsilon(1e-6), rel=1e-9)


def randomized_response_divergence(epsilon, order):
    with mpmath.workdps(60):
        epsilon, order = mpmath.mpf(epsilon), mpmath.mpf(order)
        ratio = mpmath.cosh((order - mpmath.mpf(1) / 2) * epsilon) / mpmath.cosh(epsilon / 2)
        return mpmath.log(ratio) / (order - 1)


@given(st.floats(-9, 3).map(lambda x: 10**x), st.floats(-6, 4).map(lambda x: 1 + 10**x))
def test_the_rho_of_a_pure_release_holds_at_every_order(epsilon, order):
    (rho,) = ZCDPAccountant().compose(CentralRelease("m", epsilon, neighboring="replace"))._costs.values()
    assert randomized_response_divergence(epsilon, order) <= order * mpmath.mpf(rho)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 50.0])
def test_the_rho_of_a_pure_release_is_the_least(epsilon):
    (rho,) = ZCDPAccountant().compose(CentralRelease("m", epsilon, neighboring="replace", count=7))._costs.values()
    order = 1 + mpmath.mpf(10) ** -9
    # Control: a smaller rho fails at orders near 1.
    assert rho * (1 - 1e-6) < 7 * randomized_response_divergence(epsilon, order) / order <= rho
    assert round(ZCDPAccountant().compose(CentralRelease("m", 5.0))._sum(), 2) == 4.93


@given(st.floats(0.001, 3), st.integers(1, 3000), st.floats(1e-9, 0.1))
def test_advanced_is_never_above_pure(epsilon, uses, delta):
    event = LocalReports("m", epsilon, uses, 10)
    advanced, pure = AdvancedAccountant().compose(event), PureAccountant().compose(event)
    assert advanced.get_epsilon(delta) <= pure.get_epsilon()
    assert advanced.get_delta(pure.get_epsilon()) == 0
    assert advanced.get_delta(advanced.get_epsilon(delta)) <= delta * (1 + 1e-6)


RELEASES = [
    (CentralRelease("c", 0.7, count=3), ALL),
    (Laplace(1.4, neighboring="add_remove", sampling="none", count=3), ALL),
    (ZCDP("z", 0.1, neighboring="add_remove", sampling="none", count=3), [ZCDPAccountant, RDPAccountant]),
    (Gaussian(1.4, neighboring="add_remove", sampling="none", count=3), ALL[2:]),
    (Gaussian(1.4, neighboring="add_remove", sampling="poisson", sampling_probability=0.1, count=3), ALL[3:]),
    (DiscreteGaussianRelease(14.0, 10, neighboring="add_remove", sampling="none", count=3), ALL[2:]),
]


@pytest.mark.parametrize(("event", "accountants"), RELEASES)
def test_uses_count_wherever_they_are_said(event, accountants):
    """Uses count in an event, in `compose`, or by repeated calls."""
    one, sixty = replace(event, count=1), replace(event, count=60)
    for accountant in accountants:
        ways = [
            accountant().compose(sixty),
            accountant().compose(replace(event, count=20), 3),
            accountant().compose(one, 60),
            accountant().compose(one, 50).compose(one, 10),
        ]
        epsilons, deltas = [way.get_epsilon(1e-6) for way in ways], [way.get_delta(20.0) for way in ways]
        assert epsilons == pytest.approx([epsilons[0]] * 4, rel=1e-9)
        assert deltas == pytest.approx([deltas[0]] * 4, rel=1e-6)
        assert epsilons[0] > 1.2 * accountant().compose(one).get_epsilon(1e-6)


@pytest.mark.parametrize(
    ("event", "accountant"),
    [
        *((CentralRelease("c", 0.05, count=1000), accountant) for accountant in ALL[1:]),
        *((replace(NOISE, count=7), accountant) for accountant in ALL[2:]),
    ],
)
def test_delta_undoes_epsilon_by_every_accountant(event, accountant):
    spent = accountant().compose(event)
    for delta in (1e-3, 1e-6):
        assert 0.9 * delta < spent.get_delta(spent.get_epsilon(delta)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(("event", "accountants"), RELEASES)
def test_none_of_a_users_data_costs_what_no_user_costs(event, accountants):
    for accountant in accountants:
        cost, other = (
            accountant().compose(replace(event, neighboring=relation)) for relation in ("zero_out", "add_remove")
        )
        assert cost.get_epsilon(1e-6) == other.get_epsilon(1e-6) > 0
        assert cost.get_delta(0.5) == other.get_delta(0.5) > 0


@pytest.mark.parametrize("accountant", ALL)
def test_monotone(accountant):
    def build(epsilon, count):
        return accountant().compose(LocalReports("m", epsilon, 5, 10), count)

    for weak, strong in (((0.2, 3), (0.21, 3)), ((0.2, 3), (0.2, 4))):
        assert build(*weak).get_epsilon(1e-5) < build(*strong).get_epsilon(1e-5)
        assert build(*weak).get_delta(0.1) <= build(*strong).get_delta(0.1)
    some = build(0.2, 3)
    assert some.get_epsilon(1e-5) >= some.get_epsilon(1e-4)
    assert some.get_delta(0.1) >= some.get_delta(0.2)


@pytest.mark.parametrize("accountant", ALL)
def test_nothing_costs_nothing(accountant):
    assert accountant().get_epsilon(1e-6) == 0
    assert accountant().get_delta(0.0) == 0
    silent = accountant().compose(LocalReports("m", 1.0, 0, 10))
    assert silent.get_epsilon(1e-6) == 0


def nested(event, depth, parts=1, count=1):
    for _ in range(depth):
        event = Composed((event,) * parts, count)
    return event


@pytest.mark.parametrize("accountant", ALL)
def test_compositions_as_deep_and_wide_as_allowed_are_added_up(accountant):
    deep = accountant().compose(nested(PURE, 100))
    assert deep.get_epsilon(1e-6) == accountant().compose(PURE).get_epsilon(1e-6)
    wide = accountant().compose(nested(PURE, 16, parts=2))
    assert wide.get_epsilon(1e-6) == accountant().compose(PURE, 2**16).get_epsilon(1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize(
    "event",
    [
        PURE,
        NOISE,
        LocalReports("m", 1.0, 0, 10),
        ShuffledReports("m", 1.0, 1, 1000),
        Laplace(10.0, neighboring="replace", sampling="none"),
        Gaussian(9.0, neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=1),
        ZCDP("z", 1e-6, neighboring="replace", sampling="none"),
        DiscreteGaussianRelease(5.0, 1, neighboring="replace", sampling="none"),
    ],
)
@pytest.mark.parametrize("depth", [2, 20])
def test_nested_counts_end_in_a_figure_however_large_their_product(accountant, event, depth):
    """The product (2^62)^20 is above the largest float, and (2^62)^2 above the largest integer of a file."""
    try:
        account = accountant().compose(nested(event, depth, count=2**62))
    except UnsupportedEventError:
        return
    costs_nothing = isinstance(event, LocalReports) and not event.n_reports
    assert (account.get_epsilon(1e-6) == 0) == costs_nothing
    assert account.get_delta(1.0) == (0.0 if costs_nothing else 1.0)


# --- bad inputs ---


@pytest.mark.parametrize("accountant", ALL)
def test_unsupported_events_name_the_event_and_the_part(accountant):
    raw = Unprotected("raw gradients")
    with pytest.raises(
        UnsupportedEventError, match=rf"{accountant.__name__} cannot account for Unprotected\(.*raw grad"
    ):
        accountant().compose(raw)
    with pytest.raises(UnsupportedEventError, match=r"cannot account for Unprotected.*, part of Composed\("):
        accountant().compose(Composed((PURE, raw)))


@pytest.mark.parametrize(
    ("accountant", "event", "why"),
    [
        (PureAccountant, NOISE, "no pure epsilon"),
        (AdvancedAccountant, NOISE, "no pure epsilon"),
        (PureAccountant, ZCDP("z", 0.1, neighboring="replace", sampling="none"), "no pure epsilon"),
        (PLDAccountant, ZCDP("z", 0.1, neighboring="replace", sampling="none"), "no pure epsilon"),
        (
            ZCDPAccountant,
            Gaussian(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.1),
            "no amplification by sampling",
        ),
    ],
)
def test_events_without_a_theorem_raise(accountant, event, why):
    with pytest.raises(UnsupportedEventError, match=why):
        accountant().compose(event)


@pytest.mark.parametrize("accountant", [PureAccountant, RDPAccountant, PLDAccountant])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
@pytest.mark.parametrize(
    "fields",
    [
        {"neighboring": "add_remove", "sampling": "without_replacement", "n_users": 10, "cohort_size": 1},
        {"neighboring": "zero_out", "sampling": "without_replacement", "n_users": 10, "cohort_size": 1},
    ],
)
def test_sampling_under_the_other_relation_raises(accountant, kind, fields):
    with pytest.raises(UnsupportedEventError, match=r"no theorem is known here for sampling=|no pure epsilon"):
        accountant().compose(kind(1.0, **fields))


@pytest.mark.parametrize("accountant", [PureAccountant, RDPAccountant, PLDAccountant])
@pytest.mark.parametrize("kind", [lambda **rest: Laplace(1.0, **rest), lambda **rest: CentralRelease("c", 1.0, **rest)])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_only_of_sums_is_it_known_how_far_a_user_is_from_one_that_was_not_drawn(accountant, kind, relation):
    why = f"no theorem is known here for sampling='poisson' with neighboring='{relation}'; only Gaussian noise, and"
    with pytest.raises(UnsupportedEventError, match=why):
        accountant().compose(kind(neighboring=relation, sampling="poisson", sampling_probability=0.1))


def test_a_refused_event_leaves_no_trace():
    accountant = PureAccountant().compose(PURE)
    with pytest.raises(UnsupportedEventError):
        accountant.compose(Composed((PURE, NOISE)))
    assert accountant.get_epsilon() == pytest.approx(0.1)


def test_relations_and_units_do_not_mix():
    with pytest.raises(ValueError, match="neighboring must be the same for all events, got 'replace' before and 'add_"):
        PureAccountant().compose(PURE).compose(CentralRelease("c", 1.0))
    with pytest.raises(ValueError, match="got 'add_remove' before and 'zero_out'"):
        PureAccountant().compose(CentralRelease("c", 1.0)).compose(CentralRelease("c", 1.0, neighboring="zero_out"))
    other = CentralRelease("c", 1.0, neighboring="replace", privacy_unit="interaction")
    with pytest.raises(ValueError, match="privacy_unit must be the same"):
        PureAccountant().compose(Composed((PURE, other)))


@pytest.mark.parametrize("accountant", ALL)
def test_bad_parameters_are_refused_by_name(accountant):
    events = accountant().compose(PURE)
    for delta in (-0.1, 1.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match="delta must be"):
            events.get_epsilon(delta)
    if accountant is not PureAccountant:
        with pytest.raises(ValueError, match=r"delta must be greater than 0"):
            events.get_epsilon(0.0)
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        events.get_delta(-1.0)
    with pytest.raises(ValueError, match="epsilon must be finite"):
        events.get_delta(math.inf)
    with pytest.raises(ValueError, match="count must be at least 1"):
        events.compose(PURE, 0)
    with pytest.raises(TypeError, match="event must hold events of"):
        events.compose("noise")


@pytest.mark.parametrize("accountant", ALL)
@pytest.mark.parametrize("event", [PURE, NOISE, ZCDP("z", 1e-3, neighboring="replace", sampling="none")])
@pytest.mark.parametrize("epsilon", [1e3, 1e300, 1e305, 1.7e308])
def test_the_delta_of_a_large_epsilon_is_hardly_anything(accountant, event, epsilon):
    try:
        total = accountant().compose(event, 1000)
    except UnsupportedEventError:
        return
    with np.errstate(all="raise", under="ignore"):
        assert total.get_delta(epsilon) < 1e-100
