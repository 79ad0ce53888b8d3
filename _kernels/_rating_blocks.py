"""Ratings into blocks for `sgd`: a counting sort, of which each task does one run of the ratings, in Numba.

Numba, because the threads and the record are those of `sgd`.
"""

import numpy as np

from fastfedrec._kernels.sgd import compile_kernel


def record_type(real):
    """A rating as `sgd` reads it, in one piece: rows are unsigned, or Numba would count -1 from the end."""
    return np.dtype([("user", np.uint32), ("item", np.uint32), ("rating", real), ("weight", real)])


@compile_kernel
def count_ids(
    ids,  # IN (n_ratings,) int64
    n_ids,
):
    """How many ratings each id has; NumPy's does not release the GIL."""
    counts = np.zeros(n_ids, dtype=np.int64)
    for k in range(len(ids)):
        counts[np.uint64(ids[k])] += 1
    return counts


@compile_kernel
def count_blocks(
    users,  # IN (n_ratings,) int64
    items,  # IN (n_ratings,) int64
    user_block,  # IN (n_users,) int64 block, times n_blocks
    item_block,  # IN (n_items,) int64 block
    counts,  # IN/OUT (n_tasks, n_blocks**2) int64, zeros: ratings of each task in each block
    task,
):
    """Count one task's ratings by blocks."""
    n_ratings, n_tasks = len(users), len(counts)
    mine = counts[task]
    for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
        mine[user_block[np.uint64(users[k])] + item_block[np.uint64(items[k])]] += 1


@compile_kernel
def place_ratings(
    users,  # IN (n_ratings,) int64
    items,  # IN (n_ratings,) int64
    ratings,  # IN (n_ratings,)
    weights,  # IN (n_ratings,), or (0,) where all are 1
    user_row,  # IN (n_users,) int64
    item_row,  # IN (n_items,) int64
    user_block,  # IN (n_users,) int64 block, times n_blocks
    item_block,  # IN (n_items,) int64 block
    slots,  # IN/OUT (n_tasks, n_blocks**2) uint64 where a task's next rating of a block goes
    records,  # OUT (n_ratings,) of `record_type`
    task,
):
    """Put one task's ratings into their blocks, in the order they come."""
    n_ratings, n_tasks = len(users), len(slots)
    mine = slots[task]
    for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
        u, i = np.uint64(users[k]), np.uint64(items[k])
        block = np.uint64(user_block[u] + item_block[i])
        slot = mine[block]
        mine[block] = slot + np.uint64(1)
        record = records[slot]
        record["user"], record["item"], record["rating"] = user_row[u], item_row[i], ratings[k]
        record["weight"] = weights[k] if weights.size else 1.0


@compile_kernel
def shuffle_blocks(
    words,  # IN (n_ratings,) uint64, uniform
    starts,  # IN (n_blocks**2 + 1,) uint64
    records,  # IN/OUT (n_ratings,) of `record_type`
    task,
    n_tasks,
):
    """Put the ratings of one task's share of the blocks in random order, each block by itself (Fisher-Yates)."""
    n_blocks = len(starts) - 1
    for block in range(task * n_blocks // n_tasks, (task + 1) * n_blocks // n_tasks):
        first = starts[block]
        for slot in range(first, starts[block + 1]):
            place = (words[slot] >> np.uint64(32)) * np.uint64(slot - first + np.uint64(1)) >> np.uint64(32)
            one, other = records[slot], records[first + place]
            one["user"], other["user"] = other["user"], one["user"]
            one["item"], other["item"] = other["item"], one["item"]
            one["rating"], other["rating"] = other["rating"], one["rating"]
            one["weight"], other["weight"] = other["weight"], one["weight"]
