"""Interactions from columns, against SciPy and NumPy; the check of compressed rows; digests of the data."""

import hashlib

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import triad_bytes_per_second
from benches.ratios import with_ratios
from fastfedrec import Interactions, Key
from fastfedrec.datasets import generate_implicit


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
    # Every column is read once, and 32-bit items and values are written once, at the speed of memory.
    users, items, values = case.columns
    moved = users.nbytes + items.nbytes + 2 * values.nbytes + 4 * len(items)
    return moved / triad_bytes_per_second()


@core("time_build", impl=["fastfedrec"], order=["sorted", "shuffled"])
@with_ratios("time_build", floor=_floor)
class FromArrays:
    params = (["fastfedrec", "scipy", "numpy"], ["sorted", "by item", "shuffled"])
    param_names = ("impl", "order")

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
        for got, expected_array in zip(self.build(*self.columns), expected, strict=True):
            np.testing.assert_array_equal(got, expected_array)

    def time_build(self, columns, impl, order):
        self.build(*self.columns)


def _check_kernel(indptr, indices, values, n_items):
    from fastfedrec.data.csr import check_csr

    check_csr(indptr, indices, values, n_items)


def _check_numpy(indptr, indices, values, n_items):
    """Check the same properties by passes of NumPy."""
    # Columns may decrease at the starts of rows alone.
    falls = 1 + np.flatnonzero(indices[1:] <= indices[:-1])
    sound = indptr[0] == 0 and indptr[-1] == len(indices) and (np.diff(indptr) >= 0).all()
    sound &= indices.min() >= 0 and indices.max() < n_items and np.isin(falls, indptr).all()
    if not (sound and np.isfinite(values).all()):
        raise ValueError("the rows are not valid")


def _check_scipy(indptr, indices, values, n_items):
    """Run SciPy's full check, which covers neither values nor sorted columns."""
    csr = scipy.sparse.csr_array((values, indices, indptr), shape=(len(indptr) - 1, n_items))
    csr.check_format(full_check=True)


def _check_floor(case):
    # Every array is read once, at the speed of memory.
    return sum(array.nbytes for array in case.rows[:3]) / triad_bytes_per_second()


@with_ratios("time_check", floor=_check_floor)
class CheckRows:
    """The check of all rows from outside the package, on valid rows, which are read completely."""

    params = (["fastfedrec", "numpy", "scipy"], ["float32", "float64"])
    param_names = ("impl", "dtype")

    def setup_cache(self):
        data = generate_implicit(60_000, 3_706, key=Key.from_seed(0), ratings=True)
        return data.indptr, data.indices, data.values

    def setup(self, rows, impl, dtype):
        indptr, indices, values = rows
        self.rows = indptr, indices, values.astype(dtype), 3_706
        self.check = {"fastfedrec": _check_kernel, "numpy": _check_numpy, "scipy": _check_scipy}[impl]
        self.check(*self.rows)
        # The control: every implementation must refuse a column out of range.
        wrong = indices.copy()
        wrong[len(wrong) // 2] = 3_706
        try:
            self.check(indptr, wrong, *self.rows[2:])
        except ValueError:
            return
        raise AssertionError(f"{impl} accepts a column out of range")

    def time_check(self, rows, impl, dtype):
        self.check(*self.rows)


def _digests(data):
    from fastfedrec.data.digest import data_parts, digests

    return digests(data_parts(data))


def _hashlib(data):
    """Hash the same bytes without names and types, as a lower bound on the time of all digests."""
    digest = hashlib.blake2b(digest_size=32)
    for array in (data.indptr, data.indices, data.values, data.user_ids, data.global_user_ids, data.item_ids):
        digest.update(np.ascontiguousarray(array).view(np.uint8))
    return digest.digest()


@with_ratios("time_digests")
class Digests:
    """Digests that bind noise to its data, once for a fit with checkpoints and for each message of a node."""

    params = (["fastfedrec", "hashlib"], [6_040, 60_400])
    param_names = ("impl", "n_users")

    def setup(self, impl, n_users):
        self.data = generate_implicit(n_users, 3_706, key=Key.from_seed(0), ratings=True)
        self.bind = {"fastfedrec": _digests, "hashlib": _hashlib}[impl]
        other = self.data._replace(item_ids=self.data.item_ids[::-1])
        assert self.bind(self.data) == self.bind(self.data) != self.bind(other)

    def time_digests(self, impl, n_users):
        self.bind(self.data)
