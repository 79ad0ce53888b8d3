"""Values by user and their weighted means, by hand."""

import math

import numpy as np
import pytest

from fastfedrec.evaluation.metrics.user_values import UserValues

VALUES = np.array([0.25, np.nan, 1.0, 0.5])


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_undefined_values_have_no_weight():
    values = UserValues.of_defined(VALUES)
    assert values.weights.tolist() == [1, 0, 1, 1]
    assert values.mean == pytest.approx((0.25 + 1.0 + 0.5) / 3)
    assert values.columns.tolist() == [[0.25, 1], [0, 0], [1, 1], [0.5, 1]]
    assert UserValues.of_defined(VALUES[2:]).weights is None


def test_a_root_is_that_of_the_weighted_mean():
    values = UserValues(np.array([4.0, 1.0]), np.array([1.0, 3.0]), is_root=True)
    assert values.mean == pytest.approx(math.sqrt((4 + 3) / 4))
    sums = np.array([[7.0, 4.0], [0.0, 0.0]])
    assert values.of_sums(sums)[0] == values.mean
    assert np.isnan(values.of_sums(sums)[1])


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_some_users_keep_their_values_and_weights():
    taken = UserValues.of_defined(VALUES).take(np.array([3, 1]))
    assert taken.values[0] == 0.5
    assert taken.weights.tolist() == [1, 0]
    assert UserValues(VALUES[2:]).take(np.array([1])).mean == 0.5


def test_values_without_a_defined_user_have_no_mean():
    assert np.isnan(UserValues.of_defined(VALUES[1:2]).mean)
