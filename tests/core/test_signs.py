"""Columns have one sign, whichever they come with."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.core.signs import with_signs


@given(n=st.integers(1, 40), n_columns=st.integers(0, 5), seed=st.integers(0, 99), dtype=st.sampled_from("fdh"))
def test_signs_of_what_is_given_make_no_difference(n, n_columns, seed, dtype):
    rng = np.random.default_rng(seed)
    columns = rng.integers(-90, 90, (n, n_columns)).astype(dtype)
    result = with_signs(columns)
    assert result.dtype == columns.dtype
    np.testing.assert_array_equal(np.abs(result), np.abs(columns))
    # Random signs of the columns, and a second application, must give the same result.
    np.testing.assert_array_equal(with_signs(columns * rng.choice([-1, 1], n_columns).astype(dtype)), result)
    np.testing.assert_array_equal(with_signs(result), result)


def test_columns_that_differ_in_one_sign_alone_stay_two():
    """A tie of the largest entries, by which other rules choose a sign, is none here."""
    columns = np.array([[0.5, 0.5, -0.5], [0.5, -0.5, 0.5]])
    np.testing.assert_array_equal(with_signs(columns), [[0.5, 0.5, 0.5], [0.5, -0.5, -0.5]])
