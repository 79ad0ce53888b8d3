"""A private choice of 1,000 items, from a public list and from one of the data, beside the exact choice by counts."""

import numpy as np

from fastfedrec import Interactions, Key, choose_items
from fastfedrec.datasets import generate_implicit


class ChooseItems:
    """20,000 users x 10,000 items; "top_items" is the exact choice, which no guarantee covers."""

    param_names = ("impl",)
    params = (("public list", "list of the data", "top_items"),)
    timeout = 300

    def setup_cache(self):
        return generate_implicit(20_000, 10_000, key=Key.from_seed(0))

    def setup(self, data, impl):
        self.data = data
        if impl == "list of the data":
            self.data = Interactions(**data._fields() | {"catalogue": "data"})
        counts = np.sort(data.interactions_per_item())
        kept = self.choose(impl).interactions_per_item()
        if kept.mean() < 0.5 * counts[-1000:].mean():
            raise AssertionError(f"{impl} chooses items far from the most used")

    def choose(self, impl):
        if impl == "top_items":
            return self.data.top_items(1000)
        return choose_items(self.data, 1000, 10.0, delta=1e-6, max_items_per_user=10, key=Key.from_seed(1))

    def time_choose(self, data, impl):
        self.choose(impl)
