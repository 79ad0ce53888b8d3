import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.core.arrays import distinct

numbers = st.lists(st.integers(0, 20) | st.integers(0, 2**64 - 1), max_size=60)


@given(numbers=numbers, dtype=st.sampled_from([np.uint64, np.int32]))
def test_distinct_numbers_ascend_and_each_is_there_once(numbers, dtype):
    given_ = np.array(numbers, dtype=np.uint64).astype(dtype)
    original = given_.copy()
    got = distinct(given_)
    assert got.dtype == dtype
    assert got.tolist() == sorted(set(original.tolist()))
    np.testing.assert_array_equal(given_, original)
