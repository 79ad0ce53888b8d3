"""Users who like some groups of items, and public features of the items."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate


def grouped(n_users, n_items, seed, *, n_groups=12, length=15):
    """Return train and test rows, with one held-out item for each user, and each item's group."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, n_items)
    popularity = 0.8 * rng.normal(size=n_items)
    liking = np.log(rng.dirichlet(np.full(n_groups, 0.3), n_users) + 0.01)
    scores = liking[:, groups] + popularity + 0.5 * rng.gumbel(size=(n_users, n_items))
    lengths = rng.integers(length // 2, 2 * length, n_users)
    items = np.concatenate([
        np.argsort(-row)[:n] for row, n in zip(scores, lengths, strict=True)
    ])  # fmt: skip
    users = np.repeat(np.arange(n_users), lengths)
    rows = scipy.sparse.csr_array((np.ones(len(items)), (users, items)), shape=(n_users, n_items))
    split = next(LeaveOneOut().split(Interactions.from_scipy(rows), key=Key.from_seed(seed)))
    return split.train, split.test, groups.astype(str)


def hit_ratio_of(model, train, test):
    """Return HR@10 among 99 items that the user does not have."""
    return evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(1))["hr@10"]
