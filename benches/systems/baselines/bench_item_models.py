"""Neighbours of items by cosine, at the size of MovieLens 1M and for many items, against implicit; one thread."""

import numpy as np
import scipy.sparse

from benches.generated import random_interactions
from benches.ratios import peer, with_ratios
from fastfedrec import Interactions, ItemKNN

N_NEIGHBORS = 100
SIZES = {"6,040 x 3,706": (6_040, 3_706, 0.045), "10,000 x 40,981": (10_000, 40_981, 0.0008)}


@with_ratios("time_fit")
class FitItemKNN:
    """Largest cosines of each item among all pairs of items."""

    param_names = ("impl", "users and items")
    params = (("fastfedrec", "implicit"), tuple(SIZES))

    def setup(self, impl, size):
        self.data = random_interactions(*SIZES[size])
        self.run = getattr(self, f"_{impl}")
        with peer(impl):
            similarities = self.run()
        if impl == "implicit":
            similarities = _largest(similarities)
        # The implementations may choose different items among equal cosines, so only the cosines are compared.
        if not np.allclose(similarities, self._fastfedrec(), atol=1e-6):
            raise AssertionError(f"{impl} finds other neighbours")

    def time_fit(self, impl, size):
        self.run()

    def _fastfedrec(self):
        return ItemKNN(N_NEIGHBORS, shrinkage=0.0).fit(self.data, n_threads=1).neighbor_similarities_

    def _implicit(self):
        from implicit.nearest_neighbours import CosineRecommender

        model = CosineRecommender(K=N_NEIGHBORS + 1, num_threads=1)  # implicit counts an item as its first neighbour
        model.fit(scipy.sparse.csr_matrix(self.data.to_scipy()), show_progress=False)
        return model.similarity


class SparseCatalogue:
    """Fit and recommendation for one user with a million items, where few have interactions."""

    def setup(self):
        rng = np.random.default_rng(1)
        users, items = rng.integers(0, 10_000, 100_000), rng.choice(1_000_000, 2_000)[rng.integers(0, 2_000, 100_000)]
        self.data = Interactions.from_arrays(users, items, item_ids=np.arange(1_000_000)).binarize()
        self.model = ItemKNN(N_NEIGHBORS).fit(self.data, n_threads=1)
        self.users = self.data.user_ids[:1]
        self.model.recommend(self.users)

    def time_fit(self):
        ItemKNN(N_NEIGHBORS).fit(self.data, n_threads=1)

    def time_recommend_one(self):
        self.model.recommend(self.users)


def _largest(similarity):
    """Return each row's similarities without the first, in descending order and padded with zeros."""
    rows = [np.sort(row)[::-1] for row in np.split(similarity.data, similarity.indptr[1:-1])]
    return np.array([np.pad(row, (0, N_NEIGHBORS + 1 - len(row)))[1:] for row in rows])
