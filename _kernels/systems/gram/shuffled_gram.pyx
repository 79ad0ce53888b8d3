"""Counts of fake messages about uniform cells; see `systems/gram/fake_messages.py`.  Inputs are trusted."""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, mulhi64, stream_open, stream_refill

include "_kernels/core/_level.pxi"


def count_uniform_cells(
    const uint32_t[::1] subkey,    # IN  (8,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    const int64_t[::1] numbers,    # IN  (n_users,), of messages
    int64_t[:, ::1] counts,        # IN/OUT (n_threads, n_cells)
    uint32_t round_number,
):
    """Count a cell for each of the first words of each user's stream: the high half of word x n_cells."""
    cdef Py_ssize_t n_users = users.shape[0], u
    # The counts of a thread have a row of their own, so the sum of all rows does not depend on the threads.
    for u in prange(n_users, nogil=True, schedule="static", num_threads=<int>counts.shape[0]):
        if numbers[u]:
            count_user(&subkey[0], round_number, users[u], numbers[u], &counts[threadid(), 0], counts.shape[1])


cdef void count_user(
    const uint32_t* subkey, uint32_t round_number, uint64_t user, int64_t n, int64_t* counts, uint64_t n_cells
) noexcept nogil:
    cdef Stream stream
    cdef int i, size
    stream_open(&stream, subkey, round_number, user)
    while n > 0:
        stream_refill(&stream)
        size = <int>min(n, <int64_t>stream.end)
        for i in range(size):
            counts[mulhi64(stream.buffer[i], n_cells)] += 1  # the high half is below n_cells
        n -= size
