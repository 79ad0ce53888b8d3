"""Small interactions and models with tabulated scores, for tests of splits and of metrics."""

import zlib

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

from fastfedrec import Interactions, Key
from support.data import of_dense

KEY = Key.from_seed(23)
ALL = ["recall@2", "precision@3", "hit@1", "hr@2", "ndcg@2", "ndcg", "map@3", "mrr@2", "mrr", "auc"]


@st.composite
def interactions(draw, timestamps=False):
    """Return rows, some of them empty or with one entry; ids are strings, global ids are no row numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(2, 9)), draw(st.integers(1, 40))
    mask = rng.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]))
    data = Interactions.from_scipy(
        scipy.sparse.csr_array(mask.astype(np.float32)),
        [f"user {u}" for u in range(shape[0])],
        [f"item {i}" for i in range(shape[1])],
    ).shard(2)[1]
    if timestamps:
        data = data._replace(timestamps=rng.integers(0, draw(st.sampled_from([1, 3, 10**9])), data.n_interactions))
    return data


class Table:
    """Model with tabulated scores that counts its calls."""

    def __init__(self, data, scores):
        self.data, self.scores, self.calls = data, scores, []

    def score(self, user_ids, item_ids):
        self.calls.append(len(user_ids))
        return self.scores[self.data.user_index(user_ids), self.data.item_index(item_ids)]


def level_of(user, item, n_levels=3):
    """Return a score that depends only on the pair, with many ties."""
    return float(zlib.crc32(f"{user}/{item}".encode()) % n_levels)


class ByScore:
    """Model that scores external ids."""

    def __init__(self, n_levels=3):
        self.n_levels, self.calls = n_levels, []

    def score(self, user_ids, item_ids):
        self.calls.append(len(user_ids))
        pairs = zip(np.asarray(user_ids).tolist(), np.asarray(item_ids).tolist(), strict=True)
        return np.array([level_of(u, i, self.n_levels) for u, i in pairs])


def random_table(data, seed=0, n_levels=4, dtype=np.float64):
    return Table(data, np.random.default_rng(seed).integers(0, n_levels, data.shape).astype(dtype))


def dense_data(n_users=40, n_items=60, seed=1):
    mask = np.random.default_rng(seed).random((n_users, n_items)) < 0.3
    return of_dense(mask.astype(np.float32))
