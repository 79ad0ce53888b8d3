"""Private choice of 1,000 items, from a public list and from the data's, against the exact choice by counts."""

import numpy as np

from benches.floors import floor_seconds
from benches.generated import random_interactions
from benches.ratios import with_ratios
from fastfedrec import Interactions, Key, choose_items
from fastfedrec._kernels.mechanisms import item_choice as kernel
from fastfedrec.datasets import generate_implicit


class ChooseItems:
    """Choice for 20,000 users x 10,000 items; "top_items" is the exact choice, without a guarantee."""

    param_names = ("impl",)
    params = (("public list", "list of the data", "top_items"),)

    def setup_cache(self):
        return generate_implicit(20_000, 10_000, key=Key.from_seed(0))

    def setup(self, data, impl):
        self.data = data
        if impl == "list of the data":
            self.data = Interactions(**data._fields() | {"catalogue": "data"})
        counts = np.sort(data.interactions_per_item())
        chosen_counts = self.choose(impl).interactions_per_item()
        if chosen_counts.mean() < 0.5 * counts[-1000:].mean():
            raise AssertionError(f"{impl} chooses items far from the most used")

    def choose(self, impl):
        if impl == "top_items":
            return self.data.top_items(1000)
        return choose_items(self.data, 1000, 10.0, delta=1e-6, max_items_per_user=10, key=Key.from_seed(1))

    def time_choose(self, data, impl):
        self.choose(impl)


def _count_floor(case):
    # Each user's items are read once.
    return floor_seconds("plain", bytes_read=case.data.indices.nbytes)


@with_ratios("time_count", floor=_count_floor)
class ContributedCounts:
    """Counts of at most 10 random items of each of 6,040 users, from 1 million interactions."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data = random_interactions(6_040, 3_706, 0.0447)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        if self.run().sum() != np.minimum(self.data.interactions_per_user(), 10).sum():
            raise AssertionError(f"{impl} counts some users with too few or too many items")

    def time_count(self, impl):
        self.run()

    def _fastfedrec(self):
        data, counts = self.data, np.zeros(self.data.n_items, dtype=np.int64)
        kernel.contributed_counts(
            data.indptr, data.indices, data.global_user_ids, counts, Key.from_seed(0).subkey("bench"), 10
        )
        return counts

    def _numpy(self):
        # Each interaction gets a random number, and the 10 smallest of each user count.
        data, draws = self.data, np.random.Generator(np.random.PCG64(0)).random(self.data.n_interactions)
        rows = np.repeat(np.arange(data.n_users), data.interactions_per_user())
        order = np.lexsort((draws, rows))
        rank = np.arange(len(rows)) - data.indptr[rows]
        return np.bincount(data.indices[order[rank < 10]], minlength=data.n_items)
