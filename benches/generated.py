"""Generated data for several benchmarks."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions, Key, datasets


def thousand_items(n_users):
    """Return interactions with 1,000 items and 93 items for each user on average."""
    return datasets.generate_implicit(n_users, 1_000, key=Key.from_seed(1), mean_interactions=93.0)


def ratings(n_users, n_items, per_user):
    """Return ratings of random items, with the shares of stars in MovieLens."""
    rng = np.random.default_rng(1)
    items = np.sort(np.argsort(rng.random((n_users, n_items)), axis=1)[:, :per_user], axis=1).ravel()
    values = rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], n_users * per_user, p=[0.06, 0.11, 0.26, 0.35, 0.22])
    starts = np.arange(n_users + 1) * per_user
    return Interactions.from_scipy(scipy.sparse.csr_array((values, items, starts), shape=(n_users, n_items)))


def random_interactions(n_users, n_items, density):
    """Return random pairs of users and items."""
    matrix = scipy.sparse.random_array((n_users, n_items), density=density, rng=np.random.default_rng(1), format="csr")
    return Interactions.from_scipy(matrix).binarize()
