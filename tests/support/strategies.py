"""Hypothesis strategies, named after their values."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import Key
from fastfedrec.testing import interactions as interaction_matrices

__all__ = ["any_bound", "counts_of", "interaction_matrices", "keys", "seeds"]


def seeds():
    return st.integers(0, 2**32 - 1)


@st.composite
def counts_of(draw, n_outputs, max_inputs=4):
    """Return rows of counts out of 2^64, zeros included: a channel's table."""
    rows = []
    for _ in range(draw(st.integers(1, max_inputs))):
        cuts = sorted(draw(st.lists(st.integers(0, 2**64), min_size=n_outputs - 1, max_size=n_outputs - 1)))
        rows.append([b - a for a, b in itertools.pairwise([0, *cuts, 2**64])])
    return rows


def keys():
    return seeds().map(Key.from_seed)


#: Arguments of tests that clip updates of networks: any bound of either norm, and either type.
any_bound = given(
    seed=seeds(),
    bound=st.floats(1e-4, 10.0),
    order=st.sampled_from([1, 2]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
