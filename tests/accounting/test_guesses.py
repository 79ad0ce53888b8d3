"""The meaning of an epsilon and a delta for an adversary that guesses, by the best test of the worst mechanism."""

import math

import numpy as np
import pytest

from fastfedrec.accounting import largest_guess_share

# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 5.0, 40.0, 5000.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.2])
def test_guesses_are_those_of_the_best_test_of_the_worst_mechanism(epsilon, delta):
    """The pair is exactly (epsilon, delta): the true value with probability delta, else randomized response."""
    low = (1 - delta) / (1 + math.exp(min(epsilon, 700)))
    first, second = np.array([delta, 1 - delta - low, low, 0]), np.array([0, low, 1 - delta - low, delta])
    assert largest_guess_share(epsilon, delta) == pytest.approx(np.maximum(first, second).sum() / 2, abs=1e-12)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, "epsilon must be at least 0.0, got -1.0"),
        ({"epsilon": math.inf}, "epsilon must be finite"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta must be at most 1.0, got 1.5"),
        ({"epsilon": 1.0, "delta": -0.1}, "delta must be at least 0.0"),
    ],
)
def test_bad_parameters_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        largest_guess_share(**options)
