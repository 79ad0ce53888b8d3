"""Model files: what it takes to read one with every field looked at, beside NumPy's own reading of the same arrays."""

import tempfile
from pathlib import Path

import numpy as np

from fastfedrec import FMFLDP, Key, datasets, load


class Files:
    """A model of 20,000 users and 2,000 items, with users."""

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
