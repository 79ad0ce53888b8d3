"""Users, item factors and tolerances that tests of ALS share: exact solutions, and conjugate gradients from a start."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions

DTYPES = [np.float32, np.float64]
# For well-conditioned systems.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-9}
# For all systems; vector code solves float32 in float32.
ANY_TOLERANCE = {np.float32: 1e-3, np.float64: 1e-9}


def ratings(n_users, n_items, *, seed=0, density=0.3):
    """Return values from 0 to 5, with explicit zeros and an empty first user."""
    rng = np.random.default_rng(seed)
    held = rng.random((n_users, n_items)) < density
    held[:1] = False
    values = rng.integers(0, 6, size=held.sum()).astype(float)
    return Interactions.from_scipy(scipy.sparse.csr_array((values, np.nonzero(held)), shape=held.shape))


def factors(n_items, n_factors, dtype=np.float64, seed=1):
    return np.random.default_rng(seed).standard_normal((n_items, n_factors)).astype(dtype)


def close(got, expected, tolerance):
    """Return whether each user's factors are as expected, within `tolerance` of the user's largest."""
    scale = np.abs(expected).max(axis=1, initial=0, keepdims=True)
    return (np.abs(got - expected) <= tolerance * scale).all()


def lengths_from_none_to_all(n_items, seed=0):
    """Return users with 0, 1, 2, ... and all items, in mixed order, with values from 1 to 5."""
    return users_of([3, 0, 1, n_items, 0, n_items // 2, 2, 7, 8, 9, 15, 16, 17, 1, 40, n_items - 1, 5], n_items, seed)


def users_of(lengths, n_items, seed):
    """Return one user for each length, with values from 1 to 5."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(n_items, length, replace=False) for length in lengths]
    users = np.repeat(np.arange(len(rows)), lengths)
    shape = (len(rows), n_items)
    values = rng.integers(1, 6, len(users)).astype(float)
    return Interactions.from_scipy(scipy.sparse.csr_array((values, (users, np.concatenate(rows))), shape=shape))
