import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.accounting.gaussian import exact_delta

from fastfedrec.accounting import gaussian_mu
from fastfedrec.accounting.gaussian import gaussian_delta, gaussian_epsilon

# --- oracle ---


@settings(max_examples=60, deadline=None)
@given(st.floats(-12, 12), st.floats(-3, 30))
def test_delta_is_at_least_the_truth_and_hardly_more(log_mu_squared, beyond):
    square = Fraction(10**log_mu_squared)
    epsilon = max(0.0, float(square) / 2 + math.sqrt(square) * beyond)
    exact = exact_delta(square, epsilon)
    assert exact <= gaussian_delta(square, epsilon) <= exact * (1 + mpmath.mpf(1e-11)) + 1e-320


@settings(max_examples=60, deadline=None)
@given(st.floats(-12, 12), st.floats(-300, -0.05))
def test_epsilon_is_at_least_the_truth_and_hardly_more(log_mu_squared, log_delta):
    square, delta = Fraction(10**log_mu_squared), 10**log_delta
    epsilon = gaussian_epsilon(square, delta)
    assert exact_delta(square, epsilon) <= delta
    if epsilon:
        assert exact_delta(square, epsilon * (1 - 1e-6)) > delta


@settings(max_examples=60, deadline=None)
@given(st.floats(-12, 12), st.floats(-300, -0.05))
def test_mu_is_rounded_down_and_hardly(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = gaussian_mu(epsilon, delta)
    assert exact_delta(Fraction(mu) ** 2, epsilon) <= delta
    assert exact_delta(Fraction(mu * (1 + 1e-9)) ** 2, epsilon) > delta


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-3, 0.9])
def test_mu_of_a_grid_is_rounded_down(epsilon, delta):
    assert exact_delta(Fraction(gaussian_mu(epsilon, delta)) ** 2, epsilon) <= delta


# --- invariants ---


def test_figures_beyond_the_largest_float():
    assert gaussian_epsilon(Fraction(10) ** 400, 1e-6) == math.inf
    assert gaussian_delta(Fraction(10) ** 400, 1e300) == 1.0
    assert gaussian_epsilon(Fraction(1, 10**400), 1e-300) < 1e-190
    assert gaussian_epsilon(Fraction(10) ** 300, 1e-6) == pytest.approx(5e299)
    assert gaussian_mu(1e300, 1e-6) == pytest.approx(math.sqrt(2e300))


# --- bad inputs ---


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-6, "epsilon must be greater than 0"),
        (1.0, 0.0, "delta must be greater than 0"),
        (1.0, 1.0, "delta must be less than 1"),
        (math.nan, 0.1, "epsilon must be finite"),
    ],
)
def test_bad_parameters_are_refused_by_name(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        gaussian_mu(epsilon, delta)
