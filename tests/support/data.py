"""Small interactions for tests."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions, Key, datasets

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
#: Numbers for each of 30 items, in columns of 1 to 8 dimensions.
ITEM_FEATURES = {str(width): np.arange(30 * width).reshape(30, width) ** 2 % 17 - 8.0 for width in range(1, 9)}


def of_dense(rows, **ids):
    """Return interactions from a matrix of values, in which 0 is no interaction."""
    return Interactions.from_scipy(scipy.sparse.csr_array(rows), **ids)


def of_sets(rows, n_items):
    """Return interactions with a user for each set of items."""
    dense = np.zeros((len(rows), n_items), dtype=np.float32)
    for user, row in enumerate(rows):
        dense[user, list(row)] = 1
    return of_dense(dense)


def generated(n_users=4000, n_items=80, seed=1):
    """Return generated interactions without values."""
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


def rated(n_users, n_items, seed, **ids):
    """Return generated interactions with values from 1 to 5."""
    matrix = generated(n_users, n_items, seed).to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    return Interactions.from_scipy(matrix, **ids)


def random_ratings(n_users, n_items, seed, density=0.4, grid=STARS):
    """Return ratings of random pairs, drawn uniformly from a grid."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n_users, n_items)) < density, rng.choice(grid, (n_users, n_items)), 0)
    dense[0, 0] = grid[-1]
    return of_dense(dense)
