"""Rows of dense integer ids, the order of user-item pairs by two counting sorts, and the check of compressed rows.

Each thread takes a range of the pairs; no output depends on the number of threads.  Inputs are trusted, except in
`find_fault`, which decides whether arrays can be compressed rows.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.algorithm cimport fill, upper_bound
from libcpp.vector cimport vector

cdef extern from *:
    """
    // Threads may set a mark at the same time; a read before the write leaves its line in every cache.
    static inline void fastfedrec_mark(uint8_t* mark) {
        if (!__atomic_load_n(mark, __ATOMIC_RELAXED)) __atomic_store_n(mark, 1, __ATOMIC_RELAXED);
    }
    """
    void mark "fastfedrec_mark"(uint8_t* mark) noexcept nogil

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

ctypedef fused Value:
    float
    double

# These are the faults of `find_fault`, which returns them with the row or the entry.
cpdef enum:
    NO_FAULT = 0
    START = 1                 # the first row does not start at 0
    DECREASE = 2              # row: it ends before it starts
    END = 3                   # the last row does not end with the entries
    COLUMN = 4                # entry: its column is below 0, or not below the number of columns
    ORDER = 5                 # entry: its column is not above the one before it in its row
    VALUE = 6                 # entry: its value is not finite

cdef enum:
    BLOCK = 4096              # pairs that are compared without a branch


def mark_ids(
    const Id[::1] ids,        # IN  (n,), from 0 to n_ids - 1
    uint8_t[::1] present,     # IN/OUT (n_ids,)
    int n_threads,
):
    """Set the mark of each id that occurs to 1."""
    cdef Py_ssize_t n = ids.shape[0]
    cdef int t
    if n == 0:
        return
    for t in prange(n_threads, nogil=True, schedule="static", num_threads=n_threads):
        mark_range(&ids[0], n * t // n_threads, n * (t + 1) // n_threads, &present[0])


cdef void mark_range(const Id* ids, Py_ssize_t begin, Py_ssize_t end, uint8_t* present) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        mark(&present[ids[k]])


def look_up_ids(
    const Id[::1] ids,        # IN  (n,), from 0 to n_ids - 1
    const Row[::1] rows,      # IN  (n_ids,), or the bits of other types of this width
    Row[::1] out,             # OUT (n,)
    int n_threads,
):
    """Find the row of each id."""
    cdef Py_ssize_t n = ids.shape[0]
    cdef int t
    if n == 0:
        return
    # Threads have separate ranges of `out`.
    for t in prange(n_threads, nogil=True, schedule="static", num_threads=n_threads):
        look_up_range(&ids[0], n * t // n_threads, n * (t + 1) // n_threads, &rows[0], &out[0])


cdef void look_up_range(
    const Id* ids, Py_ssize_t begin, Py_ssize_t end, const Row* rows, Row* out
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        out[k] = rows[ids[k]]


cdef bint is_sorted(const UserRow* user, const int32_t* item, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Return whether no pair of the range is below the one before it.

    The function compares whole blocks, because a loop that may end at any pair compares one pair at a time.
    """
    cdef Py_ssize_t k, start = max(begin, 1)
    cdef int decreases
    while start < end:
        decreases = 0
        for k in range(start, min(start + BLOCK, end)):
            # The first pair is compared with the last pair before the range.
            decreases |= (user[k] < user[k - 1]) | ((user[k] == user[k - 1]) & (item[k] < item[k - 1]))
        if decreases:
            return False
        start += BLOCK
    return True


cdef void find_starts(const UserRow* user, Py_ssize_t begin, Py_ssize_t end, int64_t* indptr) noexcept nogil:
    """Find the first pair of each user in a sorted range: a count would wait for its last addition at each pair."""
    # One range writes the start of a row: the range with the first pair of this row or of a later row.
    cdef Py_ssize_t k, row = user[begin - 1] + 1 if begin else 0
    for k in range(begin, end):
        while row <= user[k]:
            indptr[row] = k
            row += 1


cdef void count_items(const int32_t* item, Py_ssize_t begin, Py_ssize_t end, int64_t* counts) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        counts[item[k]] += 1


cdef void count_users(const Position* by_item, Py_ssize_t begin, Py_ssize_t end, int64_t* counts) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        counts[by_item[2 * k]] += 1


cdef void take_starts(int64_t* counts, Py_ssize_t n_rows, int n_threads) noexcept nogil:
    """Compute where each thread's pairs of each row begin, from their counts: (n_threads, n_rows)."""
    cdef Py_ssize_t row
    cdef int64_t start = 0, count
    cdef int t
    # Starts ascend by row, and within a row by thread, so the order is stable for every number of threads.
    for row in range(n_rows):
        for t in range(n_threads):
            count = counts[t * n_rows + row]
            counts[t * n_rows + row] = start
            start += count


cdef void scatter_to_items(
    const UserRow* user, const int32_t* item, Py_ssize_t begin, Py_ssize_t end, int64_t* starts, Position* by_item
) noexcept nogil:
    """Distribute pairs to items with their users, because reading users by position would be slow."""
    cdef Py_ssize_t k
    cdef int64_t to
    for k in range(begin, end):
        # The positions of a thread and an item are separate: no two threads write to one.
        to = starts[item[k]]
        by_item[2 * to] = <Position>user[k]
        by_item[2 * to + 1] = <Position>k
        starts[item[k]] = to + 1


cdef void scatter_to_users(
    const Position* by_item, Py_ssize_t begin, Py_ssize_t end, int64_t* starts, Position* order
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(begin, end):
        order[starts[by_item[2 * k]]] = by_item[2 * k + 1]
        starts[by_item[2 * k]] += 1


def sort_pairs(
    const UserRow[::1] user_rows,   # IN  (n,)
    const int32_t[::1] item_rows,   # IN  (n,), below n_items
    Position[::1] order,            # OUT (n,)
    Position[:, ::1] by_item,       # scratch (n, 2)
    int64_t[::1] indptr,            # OUT (n_users + 1,), zeros
    Py_ssize_t n_items,
    int n_threads,
):
    """Compute the stable order by user, then item, and where each user's pairs begin; False if they are in order."""
    cdef Py_ssize_t n = user_rows.shape[0], n_users = indptr.shape[0] - 1, k
    cdef vector[int64_t] starts
    cdef int decreases = 0, t
    if n == 0:
        return False
    with nogil:
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            decreases += not is_sorted(&user_rows[0], &item_rows[0], n * t // n_threads, n * (t + 1) // n_threads)
        if not decreases:
            for t in prange(n_threads, schedule="static", num_threads=n_threads):
                find_starts(&user_rows[0], n * t // n_threads, n * (t + 1) // n_threads, &indptr[0])
            # Users after the last pair have none.
            for k in range(<Py_ssize_t>user_rows[n - 1] + 1, n_users + 1):
                indptr[k] = n
            with gil:
                return False
        starts.resize(n_threads * max(n_users, n_items))
        # The first counting sort is by item, and the second by user; the second is stable, so the pairs of a user stay
        # in order of items.
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            count_items(&item_rows[0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_items])
        take_starts(starts.data(), n_items, n_threads)
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            scatter_to_items(
                &user_rows[0], &item_rows[0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_items],
                &by_item[0, 0],
            )
        fill(starts.begin(), starts.end(), 0)
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            count_users(&by_item[0, 0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_users])
        take_starts(starts.data(), n_users, n_threads)
        for k in range(n_users):
            indptr[k] = starts[k]
        indptr[n_users] = n
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            scatter_to_users(
                &by_item[0, 0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_users], &order[0]
            )
    return True


cdef Py_ssize_t find_decrease(const int64_t* indptr, Py_ssize_t n_rows) noexcept nogil:
    """Return the first row that ends before it starts, or `n_rows`."""
    cdef Py_ssize_t row, start = 0, stop
    cdef int decreases
    while start < n_rows:
        stop = min(start + BLOCK, n_rows)
        decreases = 0
        for row in range(start, stop):
            decreases |= indptr[row + 1] < indptr[row]
        if decreases:
            while indptr[start + 1] >= indptr[start]:
                start += 1
            return start
        start = stop
    return n_rows


cdef inline bint is_value(Value value) noexcept nogil:
    return value - value == 0    # the difference is NaN for NaN and infinities


cdef int find_fault_in(
    const int64_t* indptr, Py_ssize_t n_rows, const int32_t* item, const Value* values, uint32_t n_items,
    bint rising, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t* fault_position
) noexcept nogil:
    """Find the first fault of a range of entries, of rows with starts that rise from 0 to the number of entries.

    The function counts all entries that do not rise, and the rows that start with such an entry: if the two differ, an
    entry within a row does not rise.
    """
    cdef Py_ssize_t row = upper_bound(indptr, indptr + n_rows, begin - 1) - indptr  # first row from `begin` on
    cdef Py_ssize_t k, stop, start, first
    cdef int out_of_range, decreases, not_finite
    start = begin
    while start < end:
        stop, first = min(start + BLOCK, end), row
        out_of_range, decreases, not_finite = 0, 0, 0
        for k in range(start, stop):
            out_of_range |= <uint32_t>item[k] >= n_items  # a negative number is at least 2^31 as unsigned
        for k in range(max(start, 1), stop if rising else 0):
            decreases += item[k] <= item[k - 1]
        if values:
            for k in range(start, stop):
                not_finite |= not is_value(values[k])
        while row < n_rows and indptr[row] < stop:
            if rising and indptr[row] < indptr[row + 1] and indptr[row] > 0:
                decreases -= item[indptr[row]] <= item[indptr[row] - 1]
            row += 1
        if out_of_range | decreases | not_finite:
            return classify_fault(indptr, n_rows, first, item, values, n_items, rising, start, fault_position)
        start = stop
    return NO_FAULT


cdef int classify_fault(
    const int64_t* indptr, Py_ssize_t n_rows, Py_ssize_t row, const int32_t* item, const Value* values,
    uint32_t n_items, bint rising, Py_ssize_t k, Py_ssize_t* fault_position
) noexcept nogil:
    """Return the first fault from an entry on, if any; `row` is the first that does not begin before it."""
    cdef bint begins
    while True:
        begins = False
        while row < n_rows and indptr[row] <= k:
            begins, row = True, row + 1
        # One of the three faults is found before the block ends, because `find_fault_in` has counted it.
        fault_position[0] = k
        if <uint32_t>item[k] >= n_items:
            return COLUMN
        if rising and not begins and k > 0 and item[k] <= item[k - 1]:
            return ORDER
        if values and not is_value(values[k]):
            return VALUE
        k += 1


def find_fault(
    const int64_t[::1] indptr,    # IN  (n_rows + 1,), any content
    const int32_t[::1] indices,   # IN  (n,), any content
    const Value[::1] values,      # IN  (n,), any content, or (0,) if all are 1
    Py_ssize_t n_items,           # below 2**31
    bint rising,                  # whether columns must rise within a row
    int n_threads,
):
    """Find the first fault that makes compressed rows unfit for a kernel, and the row or entry where it is.

    The function reads no memory outside the arrays, for any content.
    """
    cdef Py_ssize_t n = indices.shape[0], n_rows = indptr.shape[0] - 1, row
    cdef vector[int] kinds
    cdef vector[Py_ssize_t] fault_position
    cdef const Value* first_value = NULL
    cdef int t
    if indptr[0] != 0:
        return START, 0
    with nogil:
        row = find_decrease(&indptr[0], n_rows)
    if row < n_rows:
        return DECREASE, row
    if indptr[n_rows] != n:
        return END, n_rows
    if n == 0:
        return NO_FAULT, 0
    if values.shape[0]:
        first_value = &values[0]
    kinds.resize(n_threads)
    fault_position.resize(n_threads)
    for t in prange(n_threads, nogil=True, schedule="static", num_threads=n_threads):
        kinds[t] = find_fault_in(
            &indptr[0], n_rows, &indices[0], first_value, <uint32_t>n_items, rising,
            n * t // n_threads, n * (t + 1) // n_threads, &fault_position[t]
        )
    # Ranges are visited in their order: the result is the first fault for every number of threads.
    for t in range(n_threads):
        if kinds[t] != NO_FAULT:
            return kinds[t], fault_position[t]
    return NO_FAULT, 0
