import math
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfedrec.accounting import (
    AdvancedAccountant,
    CentralRelease,
    Gaussian,
    Laplace,
    LocalReports,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledReports,
    ZCDPAccountant,
    _loss,
    calibrate_epsilon_per_report,
    calibrate_n_reports,
    calibrate_n_rounds,
    calibrate_noise_multiplier,
    calibration,
)

PLAIN = Gaussian(1.0, neighboring="replace", sampling="none")
FIXED = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=4800, cohort_size=20)
SHUFFLED = ShuffledReports("binary response", 2.5, n_reports=100, n_users=50_000)


@pytest.mark.parametrize(
    ("event", "count", "accountant"),
    [
        (PLAIN, 1, PLDAccountant),
        (PLAIN, 50, ZCDPAccountant),
        (FIXED, 1000, PLDAccountant),
        (FIXED, 1000, RDPAccountant),
        (Laplace(1.0, neighboring="replace", sampling="none"), 10, PureAccountant),
    ],
)
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_noise_meets_the_target_and_hardly_more(event, count, accountant, epsilon):
    z = calibrate_noise_multiplier(event, epsilon=epsilon, delta=1e-6, count=count, accountant=accountant)

    def cost(noise):
        return accountant().compose(replace(event, noise_multiplier=noise), count).get_epsilon(1e-6)

    assert cost(z) <= epsilon < cost(z * 0.998)


@pytest.mark.parametrize(
    ("event", "count", "accountant"),
    [
        (SHUFFLED, 5, PLDAccountant),
        (LocalReports("binary response", 1.0, 10, 100), 3, AdvancedAccountant),
        (CentralRelease("exponential mechanism", 1.0, neighboring="replace"), 7, PureAccountant),
    ],
)
def test_epsilon_per_report_meets_the_target_and_hardly_less(event, count, accountant):
    result = calibrate_epsilon_per_report(event, epsilon=1.0, delta=1e-6, count=count, accountant=accountant)

    def cost(epsilon):
        return accountant().compose(replace(event, epsilon=epsilon), count).get_epsilon(1e-6)

    assert cost(result) <= 1.0 < cost(result * 1.002)


def test_pure_calibration_is_division():
    event = LocalReports("binary response", 1.0, 10, 100)
    result = calibrate_epsilon_per_report(event, epsilon=6.0, delta=1e-6, count=3, accountant=PureAccountant)
    assert 0.2 * 0.999 <= result <= 0.2


@pytest.mark.parametrize(("epsilon", "n_users"), [(0.01, 1000), (0.1, 1000), (1.0, 1000), (6.0, 30), (3.0, 1)])
@pytest.mark.parametrize("neighboring", ["replace", "zero_out"])
def test_reports_meet_the_target_and_hardly_fewer(epsilon, n_users, neighboring):
    event = ShuffledReports("binary response", 1.0, 7, n_users, neighboring=neighboring)
    result = calibrate_n_reports(event, epsilon=epsilon, delta=1e-6)

    def cost(n_reports):
        return PLDAccountant().compose(replace(event, n_reports=n_reports)).get_epsilon(1e-6) if n_reports else 0.0

    assert cost(result) <= epsilon < cost(max(result + 1, math.ceil(result * 1.002)))


def test_reports_are_calibrated_for_shuffled_ones_only():
    with pytest.raises(TypeError, match="event must be ShuffledReports"):
        calibrate_n_reports(LocalReports("m", 1.0, 1, 10), epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        calibrate_n_reports(SHUFFLED, epsilon=0.0, delta=1e-6)


@pytest.mark.parametrize(("event", "accountant"), [(FIXED, PLDAccountant), (PLAIN, ZCDPAccountant)])
@pytest.mark.parametrize("epsilon", [0.9, 5.0])
def test_rounds_meet_the_target_and_one_more_does_not(event, accountant, epsilon):
    n = calibrate_n_rounds(event, epsilon=epsilon, delta=1e-6, accountant=accountant)
    if n:
        assert accountant().compose(event, n).get_epsilon(1e-6) <= epsilon
    assert accountant().compose(event, n + 1).get_epsilon(1e-6) > epsilon


def test_rounds_of_the_design_page():
    # design page on privacy, "Accounting": 10 rounds cost 2.84
    assert calibrate_n_rounds(SHUFFLED, epsilon=2.84, delta=1e-6) == 10
    assert calibrate_n_rounds(SHUFFLED, epsilon=0.5, delta=1e-6) == 0


def test_a_small_delta_has_a_noise_multiplier():
    # Without tilts the PLD accountant has no bound for deltas below 1e-10.
    for event in (PLAIN, FIXED):
        z = calibrate_noise_multiplier(event, epsilon=1.0, delta=1e-12, count=10)
        assert PLDAccountant().compose(replace(event, noise_multiplier=z), 10).get_epsilon(1e-12) <= 1.0
        assert PLDAccountant().compose(replace(event, noise_multiplier=z * 0.99), 10).get_epsilon(1e-12) > 1.0


def test_a_target_that_hides_nobody_needs_no_search():
    calls = []

    class Counting(PLDAccountant):
        def compose(self, event, count=1):
            calls.append(event)
            return super().compose(event, count)

    step = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=1000, cohort_size=20)
    target = {"delta": 1e-5, "count": 50, "accountant": Counting}
    # The result is the lower end of the search.
    assert calibrate_noise_multiplier(step, epsilon=1e100, **target) == 1e-3
    assert len(calls) == 1
    assert calibrate_noise_multiplier(step, epsilon=8.0, **target) > 0.1
    assert len(calls) > 5


POISSON = Gaussian(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.001)


@pytest.mark.parametrize("epsilon", [6.0, 50.0, 200.0, 1000.0])
def test_a_large_target_takes_little_work_and_is_met_by_the_accountant_itself(epsilon, monkeypatch):
    n_cells = []
    convolve = _loss.convolve

    def counting(*arguments):
        total = convolve(*arguments)
        n_cells.append(len(total.pmf))
        return total

    monkeypatch.setattr(_loss, "convolve", counting)
    calibration._find_noise.cache_clear()
    z = calibrate_noise_multiplier(POISSON, epsilon=epsilon, delta=1e-6, count=1000)
    # The grid of small targets would need 8e6 cells for the largest target.
    assert sum(n_cells) < 5e6

    def cost(noise):
        return PLDAccountant().compose(replace(POISSON, noise_multiplier=noise), 1000).get_epsilon(1e-6)

    assert cost(z) <= epsilon < cost(z * 0.998)


@given(st.integers(1, 1000), st.integers(1, 6))
@example(1, 1)
@example(10, 1)  # ten of 0.1 within 1.0
@example(3, 1)  # three of 0.1 within 0.3
@example(1000, 3)
def test_sums_of_decimals_are_those_that_a_reader_means(count, digits):
    one = CentralRelease("m", float(f"1e-{digits}"), neighboring="replace")
    target = float(Decimal(f"1e-{digits}") * count)
    assert calibrate_n_rounds(one, epsilon=target, delta=1e-9, accountant=PureAccountant) == count
    below = target * (1 - 1e-9)
    assert calibrate_n_rounds(one, epsilon=below, delta=1e-9, accountant=PureAccountant) == count - 1
    spent = PureAccountant().compose(one, count).get_epsilon()
    # The claim itself is never below the sum of the binary numbers.
    assert Fraction(one.epsilon) * count <= Fraction(spent)


def test_extremes_end():
    weak = LocalReports("binary response", 1e-12, 1, 100)
    assert calibrate_n_rounds(weak, epsilon=1.0, delta=1e-6, accountant=PureAccountant) == 10**9
    for epsilon in (1e12, 1.7e308):
        assert calibrate_n_reports(SHUFFLED, epsilon=epsilon, delta=1e-6) == 10**9
    easy = calibrate_epsilon_per_report(weak, epsilon=1e6, delta=1e-6, accountant=PureAccountant)
    assert easy == 40.0
    with pytest.raises(ValueError, match="no noise_multiplier in the range of this search meets the target"):
        calibrate_noise_multiplier(PLAIN, epsilon=1e-8, delta=1e-12, count=10, accountant=RDPAccountant)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrate_noise_multiplier(PLAIN, epsilon=0.0, delta=1e-6), "epsilon must be greater than 0"),
        (lambda: calibrate_noise_multiplier(PLAIN, epsilon=1.0, delta=1.0), "delta must be less than 1"),
        (lambda: calibrate_noise_multiplier(PLAIN, epsilon=1.0, delta=0.1, count=0), "count must be at least 1"),
        (lambda: calibrate_noise_multiplier(SHUFFLED, epsilon=1.0, delta=0.1), "event must be Gaussian or Laplace"),
        (lambda: calibrate_epsilon_per_report(PLAIN, epsilon=1.0, delta=0.1), "event must be LocalReports, Shuffled"),
        (lambda: calibrate_n_rounds(PLAIN, epsilon=math.nan, delta=0.1), "epsilon must be finite"),
        (lambda: calibrate_n_rounds(PLAIN, epsilon=-1.0, delta=0.1), r"epsilon must be greater than 0\.0, got -1\.0;"),
    ],
)
def test_bad_parameters_are_refused_by_name(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("epsilon", ["1", None, 1j, [1.0]])
def test_a_target_that_is_no_number_is_named(epsilon):
    with pytest.raises(TypeError, match="epsilon must be a"):
        calibrate_n_rounds(PLAIN, epsilon=epsilon, delta=0.1)


def test_the_largest_target_is_one():
    assert calibrate_n_rounds(CentralRelease("c", 1e300), epsilon=sys.float_info.max, delta=0.1) > 0
