"""Ratings and reports for tests of Laplace-RR-SVD."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
GUARANTEED = ["optimal", "mixture", "serial", "laplace"]


def random_ratings(n_users, n_items, seed, density=0.4, grid=STARS):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n_users, n_items)) < density, rng.choice(grid, (n_users, n_items)), 0)
    dense[0, 0] = grid[-1]
    return Interactions.from_scipy(scipy.sparse.csr_array(dense))


def update_of(model, data, key, **options):
    return model.local_round(model.initial_state(data, key), data, key, 0, **options)
