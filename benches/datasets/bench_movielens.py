"""Reading the layout of MovieLens 1M, against a Python loop and pandas, and MovieLens 20M from file to interactions."""

import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np

from benches.datasets import bench_tables
from benches.ratios import peer
from fastfedrec.datasets import load_movielens


def _fastfedrec(folder):
    data = load_movielens(folder)
    return data.n_interactions, float(data.values.sum())


def _python(folder):
    rows = {}
    with open(folder / "ratings.dat", encoding="latin-1") as lines:
        for line in lines:
            user, item, rating, time = line.rstrip().split("::")
            rows[int(user), int(item)] = (float(rating), int(time))
    return len(rows), sum(rating for rating, _ in rows.values())


def _pandas(folder):
    import pandas as pd

    text = (folder / "ratings.dat").read_bytes().replace(b"::", b"\t")
    frame = pd.read_csv(BytesIO(text), sep="\t", names=["user", "item", "rating", "timestamp"])
    matrix = frame.sort_values(["user", "item"])
    return len(matrix), float(matrix.rating.sum())


class LoadMovielens:
    params = (["fastfedrec", "python", "pandas"], [100_000, 1_000_000])
    param_names = ("impl", "n_ratings")

    def setup(self, impl, n_ratings):
        if impl == "pandas":
            with peer("pandas"):
                import pandas  # noqa: F401
        self.load = {"fastfedrec": _fastfedrec, "python": _python, "pandas": _pandas}[impl]
        self._scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self._scratch.name)
        n_users, n_items = 6040, 3706
        pair = np.arange(n_ratings) * 22_369_621 % (n_users * n_items)  # a prime step gives distinct, unsorted pairs
        rating = pair % 5 + 1
        lines = zip((pair // n_items + 1).tolist(), (pair % n_items + 1).tolist(), rating.tolist(), strict=True)
        (self.folder / "ratings.dat").write_text("".join(f"{u}::{i}::{r}::978300760\n" for u, i, r in lines))
        (self.folder / "users.dat").write_text("".join(f"{u}::F::25::4::12345\n" for u in range(1, n_users + 1)))
        (self.folder / "movies.dat").write_text("".join(f"{i}::T (1999)::War\n" for i in range(1, n_items + 1)))
        if self.load(self.folder) != (n_ratings, float(rating.sum())):
            raise AssertionError(f"{impl} reads other ratings than the file's")

    def teardown(self, impl, n_ratings):
        self._scratch.cleanup()

    def time_load(self, impl, n_ratings):
        self.load(self.folder)


class LoadMovielens20M:
    setup_cache = bench_tables.LoadTable20M.setup_cache

    def setup(self, cached):
        path, sums = cached
        self.folder = path.parent
        titles = (f'{item},"Title, {item} (1999)",Drama\n' for item in range(1, 5 * 26_744, 5))
        (self.folder / "movies.csv").write_text("movieId,title,genres\n" + "".join(titles))
        if _fastfedrec(self.folder) != (10 * bench_tables.N_RATINGS, sums[2]):
            raise AssertionError("fastfedrec reads other ratings than the file's")

    def time_load(self, cached):
        load_movielens(self.folder)

    peakmem_load = time_load
