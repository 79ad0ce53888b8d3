"""Conversion of a SciPy matrix for kernels: a check in place if rows are sorted, and a sort otherwise."""

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import triad_bytes_per_second
from benches.ratios import with_ratios
from fastfedrec import Key
from fastfedrec.data.conversion import borrow_rows
from fastfedrec.datasets import generate_implicit


def _fastfedrec(matrix):
    rows = borrow_rows("matrix", matrix)
    return rows.indptr, rows.indices, rows.values


def _scipy(matrix):
    """Return the same rows from SciPy, which checks the structure and no values."""
    csr = scipy.sparse.csr_array(matrix, copy=matrix.format == "csr" and not matrix.has_sorted_indices)
    csr.sum_duplicates()
    csr.check_format(full_check=True)
    return csr.indptr, csr.indices, csr.data


def _floor(case):
    # Columns and values are read once, at the speed of memory.
    return (case.matrix.data.nbytes + 4 * case.matrix.nnz) / triad_bytes_per_second()


@core("time_borrow", impl=["fastfedrec"], layout=["csr"])
@with_ratios("time_borrow", floor=_floor)
class BorrowRows:
    params = (["fastfedrec", "scipy"], ["csr", "shuffled", "coo"])
    param_names = ("impl", "layout")

    def setup_cache(self):
        return generate_implicit(60_000, 3_706, key=Key.from_seed(0), ratings=True).to_scipy()

    def setup(self, matrix, impl, layout):
        self.borrow = {"fastfedrec": _fastfedrec, "scipy": _scipy}[impl]
        self.matrix = matrix
        if layout == "shuffled":
            rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            # Entries are shuffled within rows.
            order = np.lexsort((np.random.default_rng(0).random(matrix.nnz), rows))
            parts = matrix.data[order], matrix.indices[order], matrix.indptr
            self.matrix = scipy.sparse.csr_array(parts, shape=matrix.shape)
        elif layout == "coo":
            self.matrix = matrix.tocoo()
        for got, expected in zip(self.borrow(self.matrix), (matrix.indptr, matrix.indices, matrix.data), strict=True):
            np.testing.assert_array_equal(got, expected)

    def time_borrow(self, matrix, impl, layout):
        self.borrow(self.matrix)
