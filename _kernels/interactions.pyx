"""Order of user-item pairs by two counting sorts, linear in their number.  Inputs are trusted."""
from libc.stdint cimport int32_t, int64_t

ctypedef fused UserRow:
    int32_t
    int64_t

ctypedef fused Position:
    int32_t
    int64_t


cdef bint is_sorted(const UserRow* user, const int32_t* item, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(1, n):
        if user[k] < user[k - 1] or (user[k] == user[k - 1] and item[k] < item[k - 1]):
            return False
    return True


def sort_pairs(
    const UserRow[::1] user_rows,   # IN  (n,)
    const int32_t[::1] item_rows,   # IN  (n,)
    Position[::1] order,            # OUT (n,)
    Position[::1] by_item,          # scratch (n,)
    int64_t[::1] indptr,            # OUT (n_users + 1,), zeros
    int64_t[::1] item_starts,       # scratch (n_items + 1,), zeros
):
    """The stable order by user, then item, and where each user's pairs begin; False where they are in order already."""
    cdef Py_ssize_t n = user_rows.shape[0], n_users = indptr.shape[0] - 1, n_items = item_starts.shape[0] - 1, k
    cdef Position position
    cdef int64_t begin, total = 0
    if n == 0:
        return False
    with nogil:
        for k in range(n):
            indptr[user_rows[k] + 1] += 1
        for k in range(n_users):
            indptr[k + 1] += indptr[k]
        if is_sorted(&user_rows[0], &item_rows[0], n):
            with gil:
                return False
        for k in range(n):
            item_starts[item_rows[k] + 1] += 1
        for k in range(n_items):
            item_starts[k + 1] += item_starts[k]
        for k in range(n):
            by_item[item_starts[item_rows[k]]] = <Position>k
            item_starts[item_rows[k]] += 1
        # Each start moves on to its end while the pairs are dealt, and that is the next user's start.
        for k in range(n):
            position = by_item[k]
            order[indptr[user_rows[position]]] = position
            indptr[user_rows[position]] += 1
        for k in range(n_users):
            begin = indptr[k]
            indptr[k] = total
            total = begin
    return True
