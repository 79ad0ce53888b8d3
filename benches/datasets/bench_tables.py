"""Reading ratings.csv, against interactions from polars, and columns from pandas, pyarrow and NumPy.

The last three neither encode ids nor build compressed rows, so their times contain less work.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from benches.floors import floor_seconds
from benches.ratios import nan_without_peers, peer, times_faster, with_ratios
from fastfedrec import Interactions, Key
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.datasets import generate_implicit, load_table, store_table

COLUMNS = ("userId", "movieId", "rating", "timestamp")
N_RATINGS = 2_000_000
ROLES = dict(zip(("user", "item", "value", "timestamp"), COLUMNS, strict=True))


def write_ratings(path, n_ratings):
    """Write a file in the layout and order of MovieLens 20M, and return the sums of its columns."""
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
        # Blocks bound the memory of Python's numbers.
        for start in range(0, n_ratings, 500_000):
            part = (column[start : start + 500_000].tolist() for column in columns)
            file.write("".join(f"{u},{i},{r},{t}\n" for u, i, r, t in zip(*part, strict=True)))
    return [float(column.sum(dtype=np.float64)) for column in columns]


def _columns(data):
    users = np.repeat(data.user_ids, data.interactions_per_user())
    return users, data.item_ids[data.indices], data.values, data.timestamps


def _fastfedrec(path):
    return _columns(load_table(path, **ROLES))


def _pandas(path):
    import pandas as pd

    frame = pd.read_csv(path)
    return [frame[name].to_numpy() for name in COLUMNS]


def _polars(path):
    import polars as pl

    frame = pl.read_csv(path, columns=list(COLUMNS))
    return _columns(Interactions.from_arrays(*(frame[name].to_numpy() for name in COLUMNS)))


def _pyarrow(path):
    import pyarrow.csv

    table = pyarrow.csv.read_csv(path)
    return [table[name].to_numpy() for name in COLUMNS]


def _numpy(path):
    return np.loadtxt(path, delimiter=",", skiprows=1).T


IMPLS = {"fastfedrec": _fastfedrec, "pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow, "numpy": _numpy}


def _written(n_ratings):
    """Return the path of a new file, and the sums of its columns."""
    path = Path("ratings.csv").absolute()
    return path, write_ratings(path, n_ratings)


def _floor(case):
    # Every byte of the file is read once, from memory.
    return floor_seconds("plain", bytes_read=case.path.stat().st_size)


@with_ratios("time_load", floor=_floor)
class LoadTable:
    params = (list(IMPLS),)
    param_names = ("impl",)

    def setup_cache(self):
        return _written(N_RATINGS)

    def setup(self, cached, impl):
        self.path, sums = cached
        with peer(impl):
            columns = IMPLS[impl](self.path)
        np.testing.assert_allclose([column.sum(dtype=np.float64) for column in columns], sums, rtol=1e-12)

    def time_load(self, cached, impl):
        IMPLS[impl](self.path)

    peakmem_load = time_load


@with_ratios("time_load", floor=_floor)
class LoadTable20M(LoadTable):
    params = (["fastfedrec", "pandas", "polars", "pyarrow"],)  # NumPy takes minutes

    # asv calls an inherited `setup_cache` once, for the first class that it finds, so this class defines another one.
    def setup_cache(self):
        return _written(10 * N_RATINGS)


@nan_without_peers
class TimesPolars:
    """Time of polars and `from_arrays` over ours for the same columns, with alternating calls."""

    unit = "times faster"
    setup_cache = LoadTable20M.setup_cache

    def setup(self, cached):
        with peer("polars"):
            import polars  # noqa: F401

    def track_times_polars(self, cached):
        path = cached[0]
        return times_faster(lambda: _polars(path), lambda: _fastfedrec(path), repetitions=3)


class StoreTable:
    """Conversion of the file to a folder on disk, against loading it into memory and storing the result."""

    params = (["fastfedrec", "in_memory"],)
    param_names = ("impl",)

    def setup_cache(self):
        path = Path("ratings.csv").absolute()
        write_ratings(path, N_RATINGS)
        return path

    def setup(self, path, impl):
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        self.run = self._store if impl == "fastfedrec" else self._load_and_store
        expected, got = load_table(path, **ROLES), open_interactions(self.run(path))
        for name in ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))

    def teardown(self, path, impl):
        shutil.rmtree(self.folder)

    def time_store(self, path, impl):
        self.run(path)

    peakmem_store = time_store

    def _next(self):
        self.number += 1
        return self.folder / str(self.number)

    def _store(self, path):
        folder = self._next()
        store_table(path, folder, **ROLES)
        return folder

    def _load_and_store(self, path):
        folder = self._next()
        store_interactions(load_table(path, **ROLES), folder)
        return folder
