"""Fitted models: files, against NumPy's files of the same arrays; recommendations, against scores and a sort."""

import tempfile
from pathlib import Path

import numpy as np

from fastfedrec import FMFLDP, Key, datasets, load


class Files:
    """Saving and loading a model of 20,000 users and 2,000 items, with user factors."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        data = datasets.generate_implicit(20_000, 2_000, key=Key.from_seed(1))
        self.model = FMFLDP(n_rounds=1, n_reports=10).fit(data, key=Key.from_seed(1))
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "model.npz")
        self.model.save(self.path)
        with np.load(self.path) as file:
            self.arrays = dict(file)
        np.testing.assert_array_equal(load(self.path).item_factors_, self.arrays["model.item_factors_"])

    def teardown(self, impl):
        self.folder.cleanup()

    def time_load(self, impl):
        if impl == "fastfedrec":
            load(self.path)
            return
        with np.load(self.path) as file:
            dict(file)

    def time_save(self, impl):
        if impl == "fastfedrec":
            self.model.save(self.path)
        else:
            np.savez_compressed(self.path, **self.arrays)


class Recommend:
    """Ten items for each of 20,000 users, from all 2,000 items or half of them, and ten similar items."""

    param_names = ("impl", "items")
    params = (("fastfedrec", "numpy"), (2_000, 1_000))

    def setup(self, impl, items):
        data = datasets.generate_implicit(20_000, 2_000, key=Key.from_seed(1))
        self.model = FMFLDP(n_factors=32, n_rounds=1, n_reports=10).fit(data, key=Key.from_seed(1))
        self.candidates = None if items == data.n_items else data.item_ids[::2]
        _, scores = self.model.recommend(items=self.candidates)
        theirs = self.sorted()
        np.testing.assert_allclose(
            np.take_along_axis(theirs[1], theirs[0], axis=1), scores[: len(theirs[0])], rtol=1e-4
        )
        _, cosines = self.model.similar_items(data.item_ids[:100])
        np.testing.assert_allclose(cosines, self.sorted_cosines(100)[1], rtol=1e-4)

    def sorted(self, n_users=1_000):
        """Return the best items of the first users, and their array of scores."""
        data, columns = self.model.interactions_, slice(None) if self.candidates is None else self.candidates
        scores = self.model.user_factors_[:n_users] @ self.model.item_factors_.T
        rows = np.repeat(np.arange(n_users), data.interactions_per_user()[:n_users])
        scores[rows, data.indices[: len(rows)]] = -np.inf
        scores = scores[:, columns]
        best = np.argpartition(-scores, 10, axis=1)[:, :10]
        return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1), scores

    def sorted_cosines(self, n_items):
        """Return the most similar items of the first items, and their cosines."""
        factors = self.model.item_factors_
        units = factors / np.linalg.norm(factors, axis=1, keepdims=True)
        cosines = units[:n_items] @ units.T
        cosines[np.arange(n_items), np.arange(n_items)] = -np.inf
        best = np.argsort(-cosines, axis=1)[:, :10]
        return best, np.take_along_axis(cosines, best, axis=1)

    def time_recommend(self, impl, items):
        if impl == "fastfedrec":
            self.model.recommend(items=self.candidates)
        else:
            for _ in range(20):  # 20 blocks of 1,000 users
                self.sorted()

    def time_similar_items(self, impl, items):
        if impl == "fastfedrec":
            self.model.similar_items(self.model.interactions_.item_ids)
        else:
            self.sorted_cosines(len(self.model.item_factors_))
