"""Rows of dense integer ids, the order of user-item pairs by two counting sorts, and the check of compressed rows.

Each thread takes a range of the pairs; no output depends on their number.  Inputs are trusted, except in
`find_fault`, which decides whether arrays can be compressed rows.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.algorithm cimport fill, upper_bound
from libcpp.vector cimport vector

cdef extern from *:
    """
    // Threads may mark one place at once; looking first leaves its line in every cache.
    static inline void fastfedrec_mark(uint8_t* place) {
        if (!__atomic_load_n(place, __ATOMIC_RELAXED)) __atomic_store_n(place, 1, __ATOMIC_RELAXED);
    }
    """
    void mark "fastfedrec_mark"(uint8_t* place) noexcept nogil

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

# Faults of `find_fault`, returned with the row or the entry of the fault.
cpdef enum:
    SOUND = 0
    START = 1                 # the first row does not start at 0
    FALL = 2                  # row: it ends before it starts
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
    const Row[::1] rows,      # IN  (n_ids,), or the bits of anything of this width
    Row[::1] out,             # OUT (n,)
    int n_threads,
):
    """Find the row of each id."""
    cdef Py_ssize_t n = ids.shape[0]
    cdef int t
    if n == 0:
        return
    # Threads have ranges of `out` of their own.
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

    Looks at whole blocks, for a loop that may end at any pair compares one at a time.
    """
    cdef Py_ssize_t k, start = max(begin, 1)
    cdef int falls
    while start < end:
        falls = 0
        for k in range(start, min(start + BLOCK, end)):
            # Also against the last pair of the range before
            falls |= (user[k] < user[k - 1]) | ((user[k] == user[k - 1]) & (item[k] < item[k - 1]))
        if falls:
            return False
        start += BLOCK
    return True


cdef void find_starts(const UserRow* user, Py_ssize_t begin, Py_ssize_t end, int64_t* indptr) noexcept nogil:
    """Find where users' pairs begin in a sorted range: a count would wait for itself at each pair of a user."""
    # A row's start is written by one range: the one with the first pair of this row or of a later one.
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
    # Row by row, and within a row thread by thread: so the order is stable, for every number of threads.
    for row in range(n_rows):
        for t in range(n_threads):
            count = counts[t * n_rows + row]
            counts[t * n_rows + row] = start
            start += count


cdef void deal_to_items(
    const UserRow* user, const int32_t* item, Py_ssize_t begin, Py_ssize_t end, int64_t* starts, Position* by_item
) noexcept nogil:
    """Deal pairs to items with their users, which would be slow to read again by position."""
    cdef Py_ssize_t k
    cdef int64_t to
    for k in range(begin, end):
        # Places of a thread and item are its own: no two threads write to one.
        to = starts[item[k]]
        by_item[2 * to] = <Position>user[k]
        by_item[2 * to + 1] = <Position>k
        starts[item[k]] = to + 1


cdef void deal_to_users(
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
    cdef int falls = 0, t
    if n == 0:
        return False
    with nogil:
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            falls += not is_sorted(&user_rows[0], &item_rows[0], n * t // n_threads, n * (t + 1) // n_threads)
        if not falls:
            for t in prange(n_threads, schedule="static", num_threads=n_threads):
                find_starts(&user_rows[0], n * t // n_threads, n * (t + 1) // n_threads, &indptr[0])
            # Users behind the last pair have none.
            for k in range(<Py_ssize_t>user_rows[n - 1] + 1, n_users + 1):
                indptr[k] = n
            with gil:
                return False
        starts.resize(n_threads * max(n_users, n_items))
        # A counting sort by item, then by user: the second is stable, so a user's pairs stay in order of items.
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            count_items(&item_rows[0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_items])
        take_starts(starts.data(), n_items, n_threads)
        for t in prange(n_threads, schedule="static", num_threads=n_threads):
            deal_to_items(
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
            deal_to_users(
                &by_item[0, 0], n * t // n_threads, n * (t + 1) // n_threads, &starts[t * n_users], &order[0]
            )
    return True


cdef Py_ssize_t find_fall(const int64_t* indptr, Py_ssize_t n_rows) noexcept nogil:
    """Return the first row that ends before it starts, or `n_rows`."""
    cdef Py_ssize_t row, start = 0, stop
    cdef int falls
    while start < n_rows:
        stop = min(start + BLOCK, n_rows)
        falls = 0
        for row in range(start, stop):
            falls |= indptr[row + 1] < indptr[row]
        if falls:
            while indptr[start + 1] >= indptr[start]:
                start += 1
            return start
        start = stop
    return n_rows


cdef inline bint is_value(Value value) noexcept nogil:
    return value - value == 0    # of NaN and infinities the difference is NaN


cdef int find_fault_in(
    const int64_t* indptr, Py_ssize_t n_rows, const int32_t* item, const Value* values, uint32_t n_items,
    bint rising, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t* where
) noexcept nogil:
    """Find the first fault of a range of entries, of rows that rise from 0 to their number.

    Entries that do not rise are counted without regard to rows, and so are rows that start with one: where the two
    differ, one is within a row.
    """
    cdef Py_ssize_t row = upper_bound(indptr, indptr + n_rows, begin - 1) - indptr    # the first not begun before
    cdef Py_ssize_t k, stop, start, first
    cdef int outside, falls, unfit
    start = begin
    while start < end:
        stop, first = min(start + BLOCK, end), row
        outside, falls, unfit = 0, 0, 0
        for k in range(start, stop):
            outside |= <uint32_t>item[k] >= n_items  # a negative one is at least 2^31 without its sign
        for k in range(max(start, 1), stop if rising else 0):
            falls += item[k] <= item[k - 1]
        if values:
            for k in range(start, stop):
                unfit |= not is_value(values[k])
        while row < n_rows and indptr[row] < stop:
            if rising and indptr[row] < indptr[row + 1] and indptr[row] > 0:
                falls -= item[indptr[row]] <= item[indptr[row] - 1]
            row += 1
        if outside | falls | unfit:
            return name_fault(indptr, n_rows, first, item, values, n_items, rising, start, where)
        start = stop
    return SOUND


cdef int name_fault(
    const int64_t* indptr, Py_ssize_t n_rows, Py_ssize_t row, const int32_t* item, const Value* values,
    uint32_t n_items, bint rising, Py_ssize_t k, Py_ssize_t* where
) noexcept nogil:
    """Return the first fault from an entry on, if any; `row` is the first that does not begin before it."""
    cdef bint begins
    while True:
        begins = False
        while row < n_rows and indptr[row] <= k:
            begins, row = True, row + 1
        # One of the three is found before the block ends: `find_fault_in` has counted it.
        where[0] = k
        if <uint32_t>item[k] >= n_items:
            return COLUMN
        if rising and not begins and k > 0 and item[k] <= item[k - 1]:
            return ORDER
        if values and not is_value(values[k]):
            return VALUE
        k += 1


def find_fault(
    const int64_t[::1] indptr,    # IN  (n_rows + 1,), anything
    const int32_t[::1] indices,   # IN  (n,), anything
    const Value[::1] values,      # IN  (n,), anything, or (0,) where all are 1
    Py_ssize_t n_items,           # below 2**31
    bint rising,                  # whether columns must rise within a row
    int n_threads,
):
    """Find the first fault that makes compressed rows unfit for a kernel, and the row or entry where it is.

    Reads no memory outside the arrays, for any content.
    """
    cdef Py_ssize_t n = indices.shape[0], n_rows = indptr.shape[0] - 1, row
    cdef vector[int] kinds
    cdef vector[Py_ssize_t] where
    cdef const Value* first_value = NULL
    cdef int t
    if indptr[0] != 0:
        return START, 0
    with nogil:
        row = find_fall(&indptr[0], n_rows)
    if row < n_rows:
        return FALL, row
    if indptr[n_rows] != n:
        return END, n_rows
    if n == 0:
        return SOUND, 0
    if values.shape[0]:
        first_value = &values[0]
    kinds.resize(n_threads)
    where.resize(n_threads)
    for t in prange(n_threads, nogil=True, schedule="static", num_threads=n_threads):
        kinds[t] = find_fault_in(
            &indptr[0], n_rows, &indices[0], first_value, <uint32_t>n_items, rising,
            n * t // n_threads, n * (t + 1) // n_threads, &where[t]
        )
    # Ranges in their order: the first fault of all, for every number of threads.
    for t in range(n_threads):
        if kinds[t] != SOUND:
            return kinds[t], where[t]
    return SOUND, 0
