"""Discrete k-means by swaps (docs/explanation/systems/private_prototypes/private-kmeans.md).

A user's squared distances are integers of 16 bits, at most LEVELS, before anything is summed; all sums are of integers,
so neither their order nor rounding matters.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from _kernels.core._chacha20 cimport mulhi64

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/compute/_clustering.h" namespace "fastfedrec" nogil:
    cdef cppclass Distances:
        const uint16_t* rows
        const uint16_t* nearest
        const uint16_t* second
        Py_ssize_t n_candidates
    void add_minima(
        const Distances& distances, const int32_t* users, Py_ssize_t n, int64_t* nearest_sums, int64_t* excess_sums
    ) noexcept

cdef enum:
    LARGEST = 65535           # the largest distance: the sensitivity of every sum
    USERS_AT_ONCE = 1024      # distances of these users stay in the second-level cache

cdef struct Block:
    int32_t cluster[USERS_AT_ONCE]
    int32_t users[USERS_AT_ONCE]  # in order of their cluster
    uint16_t nearest[USERS_AT_ONCE]
    uint16_t second[USERS_AT_ONCE]


def grid_distances(
    const double[:, ::1] points,      # IN  (n_users, n_dimensions)
    const double[:, ::1] candidates,  # IN  (n_candidates, n_dimensions)
    uint16_t[:, ::1] out,             # OUT (n_users, n_candidates)
    double levels_per_unit,
    int n_threads,
):
    """Compute squared distances to the nearest level, at most LARGEST for every value of the points."""
    cdef Py_ssize_t n_users = points.shape[0], p = points.shape[1], u, i, f
    cdef double total, difference
    for u in prange(
        n_users, nogil=True, schedule="static", num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        # |x - c|^2 is rounded to the nearest level; NaN is not below LARGEST, so it becomes LARGEST.
        for i in range(candidates.shape[0]):
            total = 0.0
            for f in range(p):
                difference = points[u, f] - candidates[i, f]
                total = total + difference * difference
            total = total * levels_per_unit + 0.5
            out[u, i] = <uint16_t>total if total < LARGEST else LARGEST


cdef inline void _nearest_two(
    const uint16_t* distances, const int64_t* chosen, Py_ssize_t n, int32_t* cluster, uint16_t* nearest,
    uint16_t* second,
) noexcept nogil:
    # There are no branches, because the nearer centre cannot be predicted. A distance and its cluster are one number,
    # so of equally near centres the first is the least.
    cdef uint64_t first_key = (<uint64_t>1 << 48) - 1, second_key = first_key, x
    cdef Py_ssize_t c
    # c is in the low half of x, so the first of equal distances is the least.
    for c in range(n):
        x = <uint64_t>distances[chosen[c]] << 32 | <uint64_t>c
        second_key = min(second_key, max(first_key, x))
        first_key = min(first_key, x)
    cluster[0] = <int32_t><uint32_t>first_key
    nearest[0] = <uint16_t>(first_key >> 32)
    second[0] = <uint16_t>(second_key >> 32)


cdef inline void _add_block(
    const uint16_t* rows, Py_ssize_t n_users, const int64_t* chosen, Py_ssize_t n_clusters, Block* block, int32_t* ends,
    Py_ssize_t n, int64_t* nearest_sums, int64_t* excess_sums,
) noexcept nogil:
    cdef Distances distances
    cdef Py_ssize_t u, c
    cdef int32_t first = 0
    # Users are sorted by cluster, by counting: n_users <= USERS_AT_ONCE, and clusters are below n_clusters.
    memset(ends, 0, (n_clusters + 1) * sizeof(int32_t))
    for u in range(n_users):
        _nearest_two(
            rows + u * n, chosen, n_clusters, &block.cluster[u], &block.nearest[u], &block.second[u]
        )
        ends[block.cluster[u] + 1] += 1
    for c in range(n_clusters):
        ends[c + 1] += ends[c]
    for u in range(n_users):  # in order of their cluster; each start moves to its end
        c = block.cluster[u]
        block.users[ends[c]] = <int32_t>u
        ends[c] += 1
    distances.rows, distances.nearest, distances.second, distances.n_candidates = rows, block.nearest, block.second, n
    # Each cluster has fewer than 2^16 users, as add_minima requires.
    for c in range(n_clusters):
        if ends[c] > first:
            add_minima(distances, block.users + first, ends[c] - first, nearest_sums, excess_sums + c * n)
        first = ends[c]


def swap_sums(
    const uint16_t[:, ::1] distances,  # IN  (n_users, n_candidates)
    const int64_t[::1] chosen,         # IN  (n_clusters,), candidates
    int64_t[:, ::1] nearest_sums,      # IN/OUT (n_threads, n_candidates)
    int64_t[:, :, ::1] excess_sums,    # IN/OUT (n_threads, n_clusters, n_candidates)
    int n_threads,
):
    """Add all users' min(distance, nearest) for every candidate, with the distance to the nearest chosen one.

    Also add, for each cluster's users and every candidate, the excess of min(distance, second) over that.
    """
    cdef Py_ssize_t n_users = distances.shape[0], n_clusters = chosen.shape[0], first
    cdef Block* block
    cdef int32_t* ends
    cdef int failed = 0
    # A thread without a block would only delay the others.
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1 and n_users > USERS_AT_ONCE):
        block = <Block*>malloc(sizeof(Block))
        ends = <int32_t*>malloc((n_clusters + 1) * sizeof(int32_t))
        # Each thread adds to separate sums; integers may be added in any order.
        for first in prange(0, n_users, USERS_AT_ONCE, schedule="dynamic"):
            if block == NULL or ends == NULL:
                failed |= 1
            else:
                _add_block(
                    &distances[first, 0], min(<Py_ssize_t>USERS_AT_ONCE, n_users - first), &chosen[0], n_clusters,
                    block, ends, distances.shape[1], &nearest_sums[threadid(), 0], &excess_sums[threadid(), 0, 0],
                )
        free(ends)
        free(block)
    if failed:
        raise MemoryError


def weights(
    const int64_t[::1] losses,     # IN  (n,)
    uint64_t[::1] out,             # OUT (n,), 2^64 exp(-x)
    const uint64_t[::1] coarse,    # IN  (n_coarse,), 2^64 exp(-i 2^-4)
    const uint64_t[:, ::1] fine,   # IN  (4, 128), 2^64 exp(-i 2^-11), ... 2^-18, 2^-25, 2^-32
    int64_t best,
    int64_t farthest,              # exponents are limited to this
    uint64_t multiplier,
    int shift,
    uint64_t max_exponent,
):
    """Compute exponential mechanism weights by integers alone: x 2^32 = (loss - best) 2^shift multiplier / 2^64."""
    cdef Py_ssize_t i
    cdef uint64_t x, w
    with nogil:
        for i in range(losses.shape[0]):
            # x is the exponent in units of 2^-32, limited to `max_exponent`.
            x = <uint64_t>min(losses[i] - best, farthest)
            x = min(mulhi64(x << shift, multiplier), max_exponent)
            # exp(-x) is exp(-its high bits) times four factors of 7 bits each.
            w = mulhi64(coarse[x >> 28], fine[0, (x >> 21) & 127])
            w = mulhi64(w, fine[1, (x >> 14) & 127])
            w = mulhi64(w, fine[2, (x >> 7) & 127])
            out[i] = mulhi64(w, fine[3, x & 127])
