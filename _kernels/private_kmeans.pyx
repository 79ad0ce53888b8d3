"""What each user may contribute, and discrete k-means by swaps (docs/explanation/privacy/private-kmeans.md).

A user's squared distances are integers of 16 bits, at most LEVELS, before anything is summed; all sums are of integers,
so neither their order nor rounding matters.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from _kernels._chacha20 cimport Stream, mulhi64, stream_open
from _kernels._subset cimport bitmap_words, mark_subset

include "_level.pxi"

cdef extern from "_kernels/_clustering.h" namespace "fastfedrec" nogil:
    void add_minima(
        const uint16_t* distances, Py_ssize_t n, uint16_t nearest, uint16_t second, uint32_t* kept, uint32_t* left
    ) noexcept

cdef enum:
    LARGEST = 65535           # a distance: the sensitivity of every sum
    USERS_AT_ONCE = 4096      # their 16-bit distances add up to less than 2^32


def keep_entries(
    const int64_t[::1] indptr,     # IN  (n_users + 1,)
    const uint64_t[::1] users,     # IN  (n_users,), global user ids
    uint8_t[::1] kept,             # OUT (n_interactions,), zeros
    const uint32_t[::1] subkey,    # IN  (8,)
    uint32_t round_number,
    int64_t max_entries,
):
    """Mark a uniform random subset of at most `max_entries` of each user's interactions, from the user's own stream."""
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
                    kept[indptr[u] + j] = 1
                continue
            stream_open(&stream, &subkey[0], round_number, users[u])
            memset(marked, 0, bitmap_words(n) * sizeof(uint64_t))
            mark_subset(&stream, n, max_entries, marked)
            for j in range(n):
                kept[indptr[u] + j] = (marked[j >> 6] >> (j & 63)) & 1
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
    """x times the directions, shrunk into the ball."""
    cdef Py_ssize_t n_users = out.shape[0], p = out.shape[1], u, j, f
    cdef double norm
    for u in prange(
        n_users, nogil=True, schedule="dynamic", chunksize=64, num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        for j in range(indptr[u], indptr[u + 1]):
            for f in range(p):
                out[u, f] += values[j] * directions[indices[j], f]
        norm = 0.0
        for f in range(p):
            norm = norm + out[u, f] * out[u, f]
        norm = sqrt(norm)
        if norm > radius:
            for f in range(p):
                out[u, f] *= radius / norm


def grid_distances(
    const double[:, ::1] points,      # IN  (n_users, n_dimensions)
    const double[:, ::1] candidates,  # IN  (n_candidates, n_dimensions)
    uint16_t[:, ::1] out,             # OUT (n_users, n_candidates)
    double levels_per_unit,
    int n_threads,
):
    """Squared distances to the nearest level, at most LARGEST whatever the points are."""
    cdef Py_ssize_t n_users = points.shape[0], p = points.shape[1], u, i, f
    cdef double total, difference
    for u in prange(
        n_users, nogil=True, schedule="static", num_threads=n_threads, use_threads_if=n_threads > 1
    ):
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
    # No branches: which centre is nearer cannot be predicted.
    cdef uint32_t first = distances[chosen[0]], next_one = LARGEST, d, nearer
    cdef int32_t label = 0
    cdef Py_ssize_t c
    for c in range(1, n):
        d = distances[chosen[c]]
        nearer = d < first
        next_one = min(next_one, max(first, d))
        first = min(first, d)
        label = <int32_t>c if nearer else label
    cluster[0] = label
    nearest[0] = <uint16_t>first
    second[0] = <uint16_t>next_one


def nearest_two(
    const uint16_t[:, ::1] distances,  # IN  (n_users, n_candidates)
    const int64_t[::1] chosen,         # IN  (n_clusters,), candidates
    int32_t[::1] cluster,              # OUT (n_users,), the nearest, the first of equals
    uint16_t[::1] nearest,             # OUT (n_users,)
    uint16_t[::1] second,              # OUT (n_users,), to the nearest of the other clusters; LARGEST if there is none
    int n_threads,
):
    """Distances to the two nearest of the chosen candidates."""
    cdef Py_ssize_t n_users = distances.shape[0], u
    for u in prange(
        n_users, nogil=True, schedule="static", num_threads=n_threads, use_threads_if=n_threads > 1
    ):
        _nearest_two(&distances[u, 0], &chosen[0], chosen.shape[0], &cluster[u], &nearest[u], &second[u])


def swap_sums(
    const uint16_t[:, ::1] distances,  # IN  (n_users, n_candidates)
    const int32_t[::1] cluster,        # IN  (n_users,)
    const uint16_t[::1] nearest,       # IN  (n_users,)
    const uint16_t[::1] second,        # IN  (n_users,)
    int64_t[:, :, :, ::1] out,         # IN/OUT (n_threads, 2, n_clusters, n_candidates)
    int n_threads,
):
    """Add each cluster's sums of min(distance, nearest) and of min(distance, second), for every candidate."""
    cdef Py_ssize_t n_users = distances.shape[0], n = distances.shape[1], size = out.shape[2] * n, first, u, i
    cdef uint32_t* sums
    cdef int64_t* total
    cdef int failed = 0
    with nogil, parallel(num_threads=n_threads, use_threads_if=n_threads > 1):
        sums = <uint32_t*>calloc(2 * size, sizeof(uint32_t))
        total = &out[threadid(), 0, 0, 0]
        for first in prange(0, n_users, USERS_AT_ONCE, schedule="dynamic"):
            if sums == NULL:
                failed |= 1
            else:
                for u in range(first, min(first + USERS_AT_ONCE, n_users)):
                    add_minima(
                        &distances[u, 0], n, nearest[u], second[u], sums + cluster[u] * n, sums + size + cluster[u] * n
                    )
                for i in range(2 * size):
                    total[i] += sums[i]
                memset(sums, 0, 2 * size * sizeof(uint32_t))
        free(sums)
    if failed:
        raise MemoryError


def weights(
    const int64_t[::1] losses,     # IN  (n,)
    uint64_t[::1] out,             # OUT (n,), 2^64 exp(-x)
    const uint64_t[::1] coarse,    # IN  (n_coarse,), 2^64 exp(-i 2^-4)
    const uint64_t[:, ::1] fine,   # IN  (4, 128), 2^64 exp(-i 2^-11), ... 2^-18, 2^-25, 2^-32
    int64_t best,
    int64_t farthest,              # a loss this much above the best counts no further
    uint64_t multiplier,
    int shift,
    uint64_t deepest,
):
    """Weights of an exponential mechanism by integers alone: x 2^32 = (loss - best) 2^shift multiplier / 2^64."""
    cdef Py_ssize_t i
    cdef uint64_t x, w
    with nogil:
        for i in range(losses.shape[0]):
            x = <uint64_t>min(losses[i] - best, farthest)
            x = min(mulhi64(x << shift, multiplier), deepest)
            w = mulhi64(coarse[x >> 28], fine[0, (x >> 21) & 127])
            w = mulhi64(w, fine[1, (x >> 14) & 127])
            w = mulhi64(w, fine[2, (x >> 7) & 127])
            out[i] = mulhi64(w, fine[3, x & 127])
