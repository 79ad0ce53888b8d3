"""Sort ratings into blocks for `sgd` by counting; each task sorts a range of the ratings.  Inputs are trusted.

The module is separate from `sgd`, because it needs no compiler at run time.
"""
from cython cimport floating
from libc.stdint cimport int64_t, uint32_t, uint64_t

import numpy as np

cdef packed struct Record32:
    uint32_t user
    uint32_t item
    float rating
    float weight

cdef packed struct Record64:
    uint32_t user
    uint32_t item
    double rating
    double weight

ctypedef fused Record:
    Record32
    Record64


def record_type(real):
    """Return the type of a rating for `sgd`: rows are unsigned, because Numba would count -1 from the end."""
    return np.dtype([("user", np.uint32), ("item", np.uint32), ("rating", real), ("weight", real)])


def count_ids(
    const int64_t[::1] ids,           # IN  (n_ratings,)
    int64_t[::1] counts,              # IN/OUT (n_ids,), zeros
):
    """Count the ratings of each id; NumPy's function does not release the GIL."""
    cdef Py_ssize_t k
    with nogil:
        for k in range(ids.shape[0]):  # ids are below n_ids (checked by the API)
            counts[ids[k]] += 1


def count_blocks(
    const int64_t[::1] users,         # IN  (n_ratings,)
    const int64_t[::1] items,         # IN  (n_ratings,)
    const int64_t[::1] user_block,    # IN  (n_users,), the exclusive or with
    const int64_t[::1] item_block,    # IN  (n_items,) is the block of a pair
    int64_t[:, ::1] counts,           # IN/OUT (n_tasks, n_blocks**2), zeros: ratings of each task in each block
    Py_ssize_t task,
):
    """Count the ratings of one task by blocks."""
    cdef Py_ssize_t n_ratings = users.shape[0], n_tasks = counts.shape[0], k
    with nogil:
        # Each task has a range of the ratings, and a separate row of `counts`.
        for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
            counts[task, user_block[users[k]] ^ item_block[items[k]]] += 1


def scatter_ratings(
    const int64_t[::1] users,         # IN  (n_ratings,)
    const int64_t[::1] items,         # IN  (n_ratings,)
    const floating[::1] ratings,      # IN  (n_ratings,)
    const floating[::1] weights,      # IN  (n_ratings,), or (0,) where all are 1
    const int64_t[::1] user_row,      # IN  (n_users,)
    const int64_t[::1] item_row,      # IN  (n_items,)
    const int64_t[::1] user_block,    # IN  (n_users,), the exclusive or with
    const int64_t[::1] item_block,    # IN  (n_items,) is the block of a pair
    uint64_t[:, ::1] slots,           # IN/OUT (n_tasks, n_blocks**2), where a task's next rating of a block goes
    Record[::1] records,              # OUT (n_ratings,)
    Py_ssize_t task,
):
    """Write the ratings of one task to their blocks, in their order."""
    cdef Py_ssize_t n_ratings = users.shape[0], n_tasks = slots.shape[0], k, block
    cdef bint weighted = weights.shape[0] > 0
    cdef Record record
    with nogil:
        # The slots of a task in a block are a range of `records` that no other task writes to: they are sums of
        # `counts`.
        for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
            block = user_block[users[k]] ^ item_block[items[k]]
            # Row numbers are below 2^32.
            record.user, record.item = <uint32_t>user_row[users[k]], <uint32_t>item_row[items[k]]
            record.rating = ratings[k]
            record.weight = weights[k] if weighted else 1
            records[slots[task, block]] = record
            slots[task, block] += 1


cdef enum:
    N_DISTINCT = 3  # previous ratings that share no row with a rating, if possible
    SEARCH_LENGTH = 64      # ratings that a search for such a rating visits


cdef inline bint _shares_no_row(
    const Record* records, uint64_t first, uint64_t slot, const Record* rating
) noexcept nogil:
    """Return whether a rating shares no row with the last ratings before `slot`."""
    # slot is unsigned, so slot - N_DISTINCT would wrap below 0.
    cdef uint64_t other = max(first, slot - N_DISTINCT) if slot > N_DISTINCT else first
    while other < slot:
        if records[other].user == rating.user or records[other].item == rating.item:
            return False
        other += 1
    return True


cdef void _separate_conflicts(Record* records, uint64_t first, uint64_t end) noexcept nogil:
    cdef uint64_t slot, other
    cdef Record record
    for slot in range(first, end):
        other = slot
        while not _shares_no_row(records, first, slot, &records[other]):
            # other < min(end, slot + SEARCH_LENGTH): no record after the block is read.
            other += 1
            if other == min(end, slot + SEARCH_LENGTH):
                return  # too few rows remain: every further search would fail after the same length
        record = records[slot]
        records[slot] = records[other]
        records[other] = record


def shuffle_blocks(
    const uint64_t[::1] words,        # IN  (n_ratings,), uniform
    const uint64_t[::1] starts,       # IN  (n_blocks**2 + 1,)
    Record[::1] records,              # IN/OUT (n_ratings,)
    Py_ssize_t task,
    Py_ssize_t n_tasks,
):
    """Shuffle the ratings of the blocks of one task, each block separately, and separate ratings that share a row.

    After a shuffle (Fisher and Yates), a rating that shares a row with one of the three before it is swapped with the
    next of 64 ratings that does not, until there is none.  A step that does not wait for the previous steps is faster.
    """
    cdef Py_ssize_t n_blocks = starts.shape[0] - 1, block
    cdef uint64_t slot, other
    cdef Record record
    with nogil:
        for block in range(task * n_blocks // n_tasks, (task + 1) * n_blocks // n_tasks):
            # Fisher and Yates: `other` is from the first slot of the block to `slot`; 32 bits times up to 2^32 do not
            # wrap.
            for slot in range(starts[block], starts[block + 1]):
                other = starts[block] + ((words[slot] >> 32) * (slot - starts[block] + 1) >> 32)
                record = records[slot]
                records[slot] = records[other]
                records[other] = record
            if starts[block] < starts[block + 1]:
                _separate_conflicts(&records[0], starts[block], starts[block + 1])
