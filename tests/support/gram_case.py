"""Interactions from sets of users' items."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions


def interactions_of(rows, n_items):
    """Return interactions with a user for each set of items."""
    dense = np.zeros((len(rows), n_items), dtype=np.float32)
    for user, row in enumerate(rows):
        dense[user, list(row)] = 1
    return Interactions.from_scipy(scipy.sparse.csr_array(dense))
