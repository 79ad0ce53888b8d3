"""Rows of dense integer ids, and the order of user-item pairs by two counting sorts, linear in their number.

Inputs are trusted.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

ctypedef fused Id:
    int32_t
    int64_t
    uint32_t
    uint64_t

ctypedef fused Row:
    int32_t
    int64_t

ctypedef fused UserRow:
    int32_t
    int64_t

ctypedef fused Position:
    int32_t
    int64_t


cdef enum:
    BLOCK = 4096              # pairs that are compared without a branch


def mark_ids(
    const Id[::1] ids,        # IN  (n,), from 0 to n_ids - 1
    uint8_t[::1] present,     # IN/OUT (n_ids,)
):
    """Set what appears to 1."""
    cdef Py_ssize_t k
    with nogil:
        for k in range(ids.shape[0]):
            present[ids[k]] = 1


def look_up_ids(
    const Id[::1] ids,        # IN  (n,), from 0 to n_ids - 1
    const Row[::1] rows,      # IN  (n_ids,)
    Row[::1] out,             # OUT (n,)
):
    """The row of each id."""
    cdef Py_ssize_t k
    with nogil:
        for k in range(ids.shape[0]):
            out[k] = rows[ids[k]]


cdef bint is_sorted(const UserRow* user, const int32_t* item, Py_ssize_t n) noexcept nogil:
    """Looks at whole blocks, for a loop that may end at any pair compares one at a time."""
    cdef Py_ssize_t k, start = 1
    cdef int falls
    while start < n:
        falls = 0
        for k in range(start, min(start + BLOCK, n)):
            falls |= (user[k] < user[k - 1]) | ((user[k] == user[k - 1]) & (item[k] < item[k - 1]))
        if falls:
            return False
        start += BLOCK
    return True


cdef void find_starts(const UserRow* user, Py_ssize_t n, int64_t* indptr, Py_ssize_t n_users) noexcept nogil:
    """Where each user's pairs begin among pairs in order: a count would wait for itself at each pair of a user."""
    cdef Py_ssize_t k, row = 0
    for k in range(n):
        while row <= user[k]:
            indptr[row] = k
            row += 1
    while row <= n_users:
        indptr[row] = n
        row += 1


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
        if is_sorted(&user_rows[0], &item_rows[0], n):
            find_starts(&user_rows[0], n, &indptr[0], n_users)
            with gil:
                return False
        for k in range(n):
            indptr[user_rows[k] + 1] += 1
        for k in range(n_users):
            indptr[k + 1] += indptr[k]
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
