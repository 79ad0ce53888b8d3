"""Ratings and settings for tests of FedRec and FedRec++."""

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

from fastfedrec import Interactions
from fastfedrec.systems.fedrec import devices as devices

RESPONSES = {"filling": "randomized_response", "keep_probability": 0.75, "add_probability": 0.25}


def random_ratings(n_users, n_items, seed, density=0.4):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n_users, n_items)) < density, rng.integers(1, 6, (n_users, n_items)), 0)
    dense[0, 0] = 5
    return Interactions.from_scipy(scipy.sparse.csr_array(dense))


small_data = st.builds(random_ratings, st.integers(1, 9), st.integers(1, 8), st.integers(0, 999))


SHARINGS = ["additive", "published"]


def add_up(messages, shape):
    """Return the sum of the messages for each item."""
    total = np.zeros(shape, dtype=np.uint64)
    np.add.at(total, messages.items, messages.values)
    return total
