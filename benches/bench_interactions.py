"""Building interactions from columns, beside SciPy's conversion and a NumPy sort."""

import numpy as np
import scipy.sparse

from fastfedrec import Interactions, Key
from fastfedrec.datasets import generate_implicit

from .floors import triad_bytes_per_second
from .ratios import with_ratios


def _fastfedrec(users, items, values):
    data = Interactions.from_arrays(users, items, values)
    return data.indptr, data.indices, data.values


def _scipy(users, items, values):
    matrix = scipy.sparse.csr_array((values, (users, items)))
    matrix.sum_duplicates()
    return matrix.indptr, matrix.indices, matrix.data


def _numpy(users, items, values):
    order = np.lexsort((items, users))
    return np.concatenate([[0], np.cumsum(np.bincount(users))]), items[order], values[order]


def _floor(case):
    """Every column read once, 32-bit items and the values written once, at the speed of memory."""
    users, items, values = case.columns
    moved = users.nbytes + items.nbytes + 2 * values.nbytes + 4 * len(items)
    return moved / triad_bytes_per_second()


@with_ratios("time_build", floor=_floor)
class FromArrays:
    params = (["fastfedrec", "scipy", "numpy"], ["sorted", "by item", "shuffled"])
    param_names = ("impl", "order")
    timeout = 300

    def setup_cache(self):
        data = generate_implicit(12_000, 3_706, key=Key.from_seed(0), ratings=True)
        users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
        return users, np.unique(data.indices, return_inverse=True)[1].reshape(-1), data.values

    def setup(self, columns, impl, order):
        users, items, _ = columns
        if order == "sorted":
            rows = np.arange(len(users))
        elif order == "by item":
            rows = np.argsort(items, kind="stable")
        else:
            rows = np.random.default_rng(0).permutation(len(users))
        self.columns = [column[rows] for column in columns]
        self.build = {"fastfedrec": _fastfedrec, "scipy": _scipy, "numpy": _numpy}[impl]
        expected = np.concatenate([[0], np.cumsum(np.bincount(users))]), *columns[1:]
        for got, wanted in zip(self.build(*self.columns), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)

    def time_build(self, columns, impl, order):
        self.build(*self.columns)
