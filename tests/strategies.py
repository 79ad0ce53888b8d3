"""Hypothesis strategies, named by what they draw."""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fastfedrec import Interactions, Key


def seeds():
    return st.integers(0, 2**32 - 1)


def keys():
    return seeds().map(Key.from_seed)


@st.composite
def interaction_matrices(draw, *, max_users=12, max_items=10, min_items=1, with_values=False):
    """Small interactions; users and items may be empty, at least one interaction is there."""
    n_users = draw(st.integers(1, max_users))
    n_items = draw(st.integers(min_items, max_items))
    rng = np.random.default_rng(draw(seeds()))
    dense = (rng.random((n_users, n_items)) < draw(st.sampled_from([0.1, 0.4, 0.9]))).astype(np.float32)
    dense[rng.integers(n_users), rng.integers(n_items)] = 1
    if with_values:
        dense *= rng.integers(1, 6, size=dense.shape)
    return Interactions.from_scipy(csr_array(dense))
