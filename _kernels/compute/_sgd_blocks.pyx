"""Ratings into blocks for `sgd`: a counting sort in which each task does one run of the ratings.  Inputs are trusted.

Beside `sgd`, because this needs no compiler at run time.
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
    """A rating as `sgd` reads it, in one piece: rows are unsigned, or Numba would count -1 from the end."""
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
    """Count one task's ratings by blocks."""
    cdef Py_ssize_t n_ratings = users.shape[0], n_tasks = counts.shape[0], k
    with nogil:
        # Each task has a run of the ratings, and its own row of `counts`.
        for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
            counts[task, user_block[users[k]] ^ item_block[items[k]]] += 1


def place_ratings(
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
    """Put one task's ratings into their blocks, in the order they come."""
    cdef Py_ssize_t n_ratings = users.shape[0], n_tasks = slots.shape[0], k, block
    cdef bint weighted = weights.shape[0] > 0
    cdef Record record
    with nogil:
        # The slots of a task in a block are a range of `records` that no other task writes to: sums of `counts`.
        for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
            block = user_block[users[k]] ^ item_block[items[k]]
            # Numbers of rows: below 2^32.
            record.user, record.item = <uint32_t>user_row[users[k]], <uint32_t>item_row[items[k]]
            record.rating = ratings[k]
            record.weight = weights[k] if weighted else 1
            records[slots[task, block]] = record
            slots[task, block] += 1


cdef enum:
    NEIGHBOURS = 3  # ratings before one that share neither row with it, if there are such
    REACH = 64      # ratings, among which they are looked for


cdef inline bint _apart(const Record* records, uint64_t first, uint64_t slot, const Record* rating) noexcept nogil:
    """Return whether a rating shares no row with the last ones before `slot`."""
    # Without a sign, slot - NEIGHBOURS would wrap below 0.
    cdef uint64_t other = max(first, slot - NEIGHBOURS) if slot > NEIGHBOURS else first
    while other < slot:
        if records[other].user == rating.user or records[other].item == rating.item:
            return False
        other += 1
    return True


cdef void _part_neighbours(Record* records, uint64_t first, uint64_t end) noexcept nogil:
    cdef uint64_t slot, other
    cdef Record record
    for slot in range(first, end):
        other = slot
        while not _apart(records, first, slot, &records[other]):
            # other < min(end, slot + REACH): no record beyond the block is read.
            other += 1
            if other == min(end, slot + REACH):
                return  # too few rows remain: each search would be as long and would fail as well
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
    """Put the ratings of one task's share of the blocks in random order, each block separately, with neighbours apart.

    After Fisher and Yates' shuffle a rating that shares a row with one of the three before it changes places with the
    next that does not, of the 64 that begin with it, until there is none: a step that waits for none before it is
    quicker.
    """
    cdef Py_ssize_t n_blocks = starts.shape[0] - 1, block
    cdef uint64_t slot, place
    cdef Record record
    with nogil:
        for block in range(task * n_blocks // n_tasks, (task + 1) * n_blocks // n_tasks):
            # Fisher and Yates: a place from the block's first to `slot`; 32 bits times up to 2^32 do not wrap.
            for slot in range(starts[block], starts[block + 1]):
                place = starts[block] + ((words[slot] >> 32) * (slot - starts[block] + 1) >> 32)
                record = records[slot]
                records[slot] = records[place]
                records[place] = record
            if starts[block] < starts[block + 1]:
                _part_neighbours(&records[0], starts[block], starts[block + 1])
