"""Random subsets of every user's interactions, for splits (docs/how-to/evaluate.md).  Inputs are trusted."""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from _kernels.core._chacha20 cimport Stream, stream_open
from _kernels.core._subset cimport bitmap_words, mark_subset

include "_kernels/core/_level.pxi"


def choose_interactions(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    const int64_t[::1] counts,     # IN  (n_users,), number of interactions to choose in each row
    const uint32_t[::1] subkey,    # IN  (8,)
    uint8_t[::1] out,              # OUT (n_interactions,), 1 where chosen
    int64_t[::1] failed,           # OUT (n_threads,), 1 where a thread had no memory
    Py_ssize_t longest,            # maximum number of interactions of a user
    int n_threads,
):
    """Choose uniformly without replacement within each row, from the stream (subkey, 0, user)."""
    cdef Py_ssize_t n_users = users.shape[0], u, i
    cdef uint64_t* marked
    cdef Stream* stream
    with nogil, parallel(num_threads=n_threads):
        marked = <uint64_t*>calloc(bitmap_words(longest) + 1, sizeof(uint64_t))
        stream = <Stream*>malloc(sizeof(Stream))
        # A user belongs to one thread, with its range of `out`; `marked` belongs to the thread, and is 0 between users.
        for u in prange(n_users, schedule="dynamic", chunksize=64):
            if marked == NULL or stream == NULL:
                failed[threadid()] = 1
            else:
                stream_open(stream, &subkey[0], 0, users[u])
                mark_subset(stream, indptr[u + 1] - indptr[u], counts[u], marked)
                for i in range(indptr[u + 1] - indptr[u]):
                    out[indptr[u] + i] = (marked[i >> 6] >> (i & 63)) & 1
                for i in range(bitmap_words(indptr[u + 1] - indptr[u])):
                    marked[i] = 0
        free(marked)
        free(stream)
