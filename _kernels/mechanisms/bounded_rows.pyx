"""Bounds on a user's contribution: a maximum number of entries, and a row within a ball.  Inputs are trusted."""
from cython.parallel cimport prange
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from _kernels.core._chacha20 cimport Stream, stream_open
from _kernels.core._subset cimport bitmap_words, mark_subset

include "_kernels/core/_level.pxi"


def keep_entries(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    uint8_t[::1] is_kept,          # OUT (n_interactions,), zeros
    const uint32_t[::1] subkey,    # IN  (8,)
    uint32_t round_number,
    int64_t max_entries,
):
    """Mark a uniform random subset of at most `max_entries` interactions of each user, from the stream of the user."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, u, j, n, longest = 0
    cdef Stream stream
    cdef uint64_t* marked
    for u in range(n_users):
        longest = max(longest, <Py_ssize_t>(indptr[u + 1] - indptr[u]))
    marked = <uint64_t*>calloc(bitmap_words(longest) + 1, sizeof(uint64_t))
    if marked == NULL:
        raise MemoryError
    with nogil:
        for u in range(n_users):
            n = indptr[u + 1] - indptr[u]
            if n <= max_entries:
                for j in range(n):
                    is_kept[indptr[u] + j] = 1
                continue
            stream_open(&stream, &subkey[0], round_number, users[u])
            memset(marked, 0, bitmap_words(n) * sizeof(uint64_t))
            # n is at most the number of interactions of the longest user, the capacity of `marked`.
            mark_subset(&stream, n, max_entries, marked)
            for j in range(n):
                is_kept[indptr[u] + j] = (marked[j >> 6] >> (j & 63)) & 1
        free(marked)


def project(
    const int64_t[::1] indptr,       # IN  (n_users + 1,)
    const int32_t[::1] indices,      # IN  (n_interactions,)
    const double[::1] values,        # IN  (n_interactions,)
    const double[:, ::1] directions,  # IN  (n_items, n_dimensions)
    double[:, ::1] out,              # OUT (n_users, n_dimensions), zeros
    double radius,
    int n_threads,
):
    """Compute x times the directions, shrunk into the ball."""
    cdef Py_ssize_t n_users = out.shape[0], p = out.shape[1], u, j, f
    cdef double norm
    # Each row of `out` belongs to one user and one thread.
    for u in prange(
        n_users, nogil=True, schedule="dynamic", chunksize=64, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        for j in range(indptr[u], indptr[u + 1]):
            for f in range(p):
                out[u, f] += values[j] * directions[indices[j], f]  # x V, with entries in their order
        norm = 0.0
        for f in range(p):
            norm = norm + out[u, f] * out[u, f]
        norm = sqrt(norm)
        if norm > radius:
            # The row is scaled to a norm of `radius`, up to rounding.
            for f in range(p):
                out[u, f] *= radius / norm
