"""Item counts from which no user has more than a fixed weight; see `systems/baselines/popularity.py`.

Inputs are trusted.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_below, stream_open

include "_kernels/core/_level.pxi"


def contributed_counts(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const int32_t[::1] indices,    # IN  (n_interactions,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    int64_t[::1] counts,           # IN/OUT (n_items,)
    const uint32_t[::1] subkey,    # IN  (8,)
    int64_t max_items,
):
    """Add up a uniform random subset of at most `max_items` items of each user (Knuth 3.4.2, Algorithm S).

    For every outcome of the draws, a user adds at most `max_items`: the guarantee depends on that.
    """
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u, j
    cdef int64_t n_needed
    cdef Stream stream
    with nogil:
        for u in range(n_users):
            n_needed = max_items
            if indptr[u + 1] - indptr[u] > n_needed:
                stream_open(&stream, &subkey[0], 0, users[u])
            # Algorithm S takes item j with probability n_needed / (number of remaining items), up to the bias of
            # stream_below.
            for j in range(indptr[u], indptr[u + 1]):
                if n_needed == 0:
                    break
                # If at most n_needed items remain, all are taken without a draw.
                if indptr[u + 1] - j > n_needed and <int64_t>stream_below(&stream, indptr[u + 1] - j) >= n_needed:
                    continue
                counts[indices[j]] += 1  # Interactions checks that indices are below n_items
                n_needed -= 1
