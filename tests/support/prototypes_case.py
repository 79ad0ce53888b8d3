"""Ratings of a few users, and a first state of private prototypes on them."""

import numpy as np

from fastfedrec import Key
from support.data import of_dense

KEY = Key.from_seed(5)


def rated(n_users=60, n_items=25, seed=0, density=0.4):
    rng = np.random.default_rng(seed)
    mask = rng.random((n_users, n_items)) < density
    mask[:, 0] = True
    return of_dense(mask * rng.integers(1, 6, mask.shape).astype(np.float64))


def start(model, data, names=("a",), n_prototypes=None):
    """Return a model's rounds and their first state."""
    rounds = model._rounds(data.n_items)
    return rounds, rounds.initial_state(names, n_prototypes or (model.n_prototypes,) * len(names), KEY)
