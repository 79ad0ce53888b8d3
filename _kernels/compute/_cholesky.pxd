"""Solve one symmetric positive definite system A x = b in place, in double: plain Cholesky, upper triangle.

Rows of the upper triangle are contiguous, so every inner loop is a run over memory.  Inline only (see setup.py).
"""
from libc.math cimport sqrt


cdef enum:
    PIVOT_ULPS = 8


cdef inline bint cholesky_factor(double* a, Py_ssize_t n) noexcept nogil:
    """Overwrite the upper triangle of the n x n row-major `a` with R, A = R'R; return False if A is singular."""
    cdef Py_ssize_t j, k, m
    cdef double pivot, scale
    cdef double tolerance = PIVOT_ULPS * n * 2.220446049250313e-16
    # The first column below the diagonal is otherwise unused: it keeps the initial entry of each pivot.
    for j in range(1, n):
        a[j * n] = a[j * n + j]
    # Right-looking: row j of R is finished, and its products are then subtracted from the rows below.
    for j in range(n):
        pivot = a[j * n + j]
        # A pivot below a few ulps of its initial entry is only rounding error; pivot * 0 != 0 means infinity or NaN.
        if not (pivot > 0.0 and (j == 0 or pivot > tolerance * a[j * n])) or pivot * 0.0 != 0.0:
            return False
        pivot = sqrt(pivot)
        scale = 1.0 / pivot  # pivot > 0: no division by zero
        a[j * n + j] = pivot
        for m in range(j + 1, n):
            a[j * n + m] *= scale
        # A_km -= R_jk R_jm for j < k <= m: rows of the upper triangle only
        for k in range(j + 1, n):
            scale = a[j * n + k]
            for m in range(k, n):
                a[k * n + m] -= scale * a[j * n + m]
    return True


cdef inline void cholesky_solve(const double* r, double* x, Py_ssize_t n) noexcept nogil:
    """Overwrite `x` (the right-hand side) with the solution of R'R x = b."""
    cdef Py_ssize_t j, m
    cdef double value
    # Forward substitution, R'y = b: x[m] is reduced by y_j R_jm.
    for j in range(n):
        value = x[j] / r[j * n + j]  # the factor's diagonal is positive
        x[j] = value
        for m in range(j + 1, n):
            x[m] -= value * r[j * n + m]
    # Backward substitution, R x = y.
    for j in range(n - 1, -1, -1):
        value = x[j]
        for m in range(j + 1, n):
            value -= r[j * n + m] * x[m]
        x[j] = value / r[j * n + j]
