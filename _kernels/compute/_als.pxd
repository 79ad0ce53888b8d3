"""One user's confidence-weighted least squares (Hu, Koren, Volinsky 2008, equation 4), shared by `als` and `fmf_ldp`.

    x_u = (V'V + reg_u I + sum_i w_ui v_i v_i')^-1  sum_i (1 + w_ui) v_i,    w_ui = weight * r_ui,  i in I_u

All sums are in double, for every type of V.  Inline only (see setup.py).
"""
from cython cimport floating
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from _kernels.compute._cholesky cimport cholesky_factor, cholesky_solve


cdef inline bint solve_user(
    const int32_t* items,          # IN  (n,), the user's items
    const floating* values,        # IN  r_ui of all users; NULL if all are 1
    Py_ssize_t start,              # where the user's values begin
    Py_ssize_t n,
    const floating* item_factors,  # IN  (n_items, stride), of which n_factors columns are read
    Py_ssize_t stride,
    const double* gram,            # IN  (n_factors, n_factors), V'V + reg I; its Cholesky factor where weight is 0
    Py_ssize_t n_factors,
    double weight,
    double ridge,                  # reg_u - reg; 0 if the weight is 0
    double* a,                     # scratch (n_factors + 1, n_factors)
    double* x,                     # OUT (n_factors,)
) noexcept nogil:
    """Solve for one user; return False if the system is numerically singular."""
    cdef double* v = a + n_factors * n_factors
    cdef const floating* row
    cdef Py_ssize_t j, f, g
    cdef double w, scaled
    memset(x, 0, n_factors * sizeof(double))
    if n == 0:
        return True           # b = 0
    # w_ui = 0: A = V'V + reg I for every user, b = sum_i v_i, in the order of the items.
    if weight == 0.0:
        for j in range(n):
            row = item_factors + items[j] * stride
            for f in range(n_factors):
                x[f] += row[f]
        cholesky_solve(gram, x, n_factors)
        return True
    # A starts from V'V + reg I; only its upper triangle is read and written.
    memcpy(a, gram, n_factors * n_factors * sizeof(double))
    for f in range(n_factors):
        a[f * n_factors + f] += ridge
    # Items i in I_u are in the order of `items`, so the sums depend on the items of this user alone.
    for j in range(n):
        # Items are below n_items (Interactions checks); the product is 64 bits wide.
        row = item_factors + items[j] * stride
        w = weight if values == NULL else weight * values[start + j]
        for f in range(n_factors):
            v[f] = row[f]
        for f in range(n_factors):
            scaled = w * v[f]  # w_ui v_if
            x[f] += v[f] + scaled  # b_f += (1 + w_ui) v_if
            for g in range(f, n_factors):
                a[f * n_factors + g] += scaled * v[g]  # A_fg += w_ui v_if v_ig, f <= g
    if not cholesky_factor(a, n_factors):
        return False
    cholesky_solve(a, x, n_factors)
    return True
