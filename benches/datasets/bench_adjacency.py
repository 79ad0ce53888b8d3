"""Reading lists of items by user, against Python's splitting of lines, and pandas on the pairs as CSV."""

from pathlib import Path

import numpy as np

from benches.floors import floor_seconds
from benches.ratios import peer, with_ratios
from fastfedrec import Interactions, Key
from fastfedrec.datasets import generate_implicit, load_adjacency

N_USERS, N_ITEMS = 30_000, 40_981  # the size of Gowalla's train.txt


def _fastfedrec(case):
    return load_adjacency(case.lines)


def _python(case):
    users, items = [], []
    with open(case.lines) as file:
        for line in file:
            user, *row = map(int, line.split())
            users += [user] * len(row)
            items += row
    return Interactions.from_arrays(users, items)


def _pandas(case):
    import pandas as pd

    frame = pd.read_csv(case.pairs)
    return Interactions.from_arrays(frame["user"].to_numpy(), frame["item"].to_numpy())


IMPLS = {"fastfedrec": _fastfedrec, "python": _python, "pandas": _pandas}


@with_ratios("time_load", floor=lambda case: floor_seconds("plain", bytes_read=case.lines.stat().st_size))
class LoadAdjacency:
    params = (list(IMPLS),)
    param_names = ("impl",)

    def setup_cache(self):
        data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1), mean_interactions=30.0)
        lines, pairs = Path("train.txt").absolute(), Path("train.csv").absolute()
        rows = np.split(data.indices, data.indptr[1:-1])
        lines.write_text("".join(f"{user} {' '.join(map(str, row.tolist()))}\n" for user, row in enumerate(rows)))
        users = np.repeat(np.arange(N_USERS), data.interactions_per_user())
        text = "".join(f"{user},{item}\n" for user, item in zip(users.tolist(), data.indices.tolist(), strict=True))
        pairs.write_text("user,item\n" + text)
        return lines, pairs, data.n_interactions

    def setup(self, cached, impl):
        self.lines, self.pairs, n_interactions = cached
        with peer(impl):
            assert IMPLS[impl](self).n_interactions == n_interactions

    def time_load(self, cached, impl):
        IMPLS[impl](self)

    peakmem_load = time_load
