"""Hypothesis strategies, named by what they draw."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import Key
from fastfedrec.testing import interactions as interaction_matrices

__all__ = ["any_bound", "interaction_matrices", "keys", "seeds"]


def seeds():
    return st.integers(0, 2**32 - 1)


def keys():
    return seeds().map(Key.from_seed)


#: Of tests that clip updates of networks: any bound of either norm, and either type.
any_bound = given(
    seed=seeds(),
    bound=st.floats(1e-4, 10.0),
    order=st.sampled_from([1, 2]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
