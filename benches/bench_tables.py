"""Reading ratings.csv as columns of a table, beside pandas, polars and NumPy reading the same columns.

Only `load_table` also encodes the ids and makes the compressed rows: its seconds hold more work than its peers'.
"""

from pathlib import Path

import numpy as np

from fastfedrec import Key
from fastfedrec.datasets import generate_implicit, load_table

COLUMNS = ("userId", "movieId", "rating", "timestamp")


def write_ratings(path, n_ratings):
    """A file in the layout of MovieLens 20M, sorted as the publisher's; the sums of its columns."""
    n_users = n_ratings // 225
    data = generate_implicit(n_users, 26_744, key=Key.from_seed(0), preset="movielens-20m", ratings=True)
    users = np.repeat(data.user_ids, data.interactions_per_user()) + 1
    n_ratings = min(n_ratings, len(users))
    columns = (
        users[:n_ratings],
        data.indices[:n_ratings].astype(np.int64) * 5 + 1,
        data.values[:n_ratings] - 0.5,
        789_652_009 + np.arange(n_ratings) * 7919 % 600_000_000,
    )
    with open(path, "w") as file:
        file.write(",".join(COLUMNS) + "\n")
        for start in range(0, n_ratings, 500_000):
            part = (column[start : start + 500_000].tolist() for column in columns)
            file.write("".join(f"{u},{i},{r},{t}\n" for u, i, r, t in zip(*part, strict=True)))
    return [float(column.sum(dtype=np.float64)) for column in columns]


def _fastfedrec(path):
    user, item, value, timestamp = COLUMNS
    data = load_table(path, user=user, item=item, value=value, timestamp=timestamp)
    users = np.repeat(data.user_ids, data.interactions_per_user())
    return users, data.item_ids[data.indices], data.values, data.timestamps


def _pandas(path):
    import pandas as pd

    frame = pd.read_csv(path)
    return [frame[name].to_numpy() for name in COLUMNS]


def _polars(path):
    import polars as pl

    frame = pl.read_csv(path)
    return [frame[name].to_numpy() for name in COLUMNS]


def _pyarrow(path):
    import pyarrow.csv

    table = pyarrow.csv.read_csv(path)
    return [table[name].to_numpy() for name in COLUMNS]


def _numpy(path):
    return np.loadtxt(path, delimiter=",", skiprows=1).T


IMPLS = {"fastfedrec": _fastfedrec, "pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow, "numpy": _numpy}


class LoadTable:
    params = (list(IMPLS),)
    param_names = ("impl",)
    n_ratings = 2_000_000
    timeout = 600

    def setup_cache(self):
        path = Path("ratings.csv").absolute()
        return path, write_ratings(path, self.n_ratings)

    def setup(self, cached, impl):
        self.path, sums = cached
        try:
            columns = IMPLS[impl](self.path)
        except ImportError as error:
            raise NotImplementedError(f"{error.name} is not installed") from None
        np.testing.assert_allclose([column.sum(dtype=np.float64) for column in columns], sums, rtol=1e-12)

    def time_load(self, cached, impl):
        IMPLS[impl](self.path)

    def peakmem_load(self, cached, impl):
        IMPLS[impl](self.path)


class LoadTable20M(LoadTable):
    params = (["fastfedrec", "pandas", "polars", "pyarrow"],)  # NumPy takes minutes
    n_ratings = 20_000_000
    timeout = 1800
