"""Reports of a shuffled sketch: one random bit about a rotated row, or about products of rotated rows.

For a user with items S, public signs D and the Hadamard matrix H of a power of two, let a = H D 1_S and b = H D'
1_S be the two sides of a rotation.  A report draws a place, 32 bits, which a public hash turns into `n_terms`
cells: a rotation and an entry of it (one side), or a rotation and an entry of each side.  It answers the sign of
the sum over its cells of a_j, or of a_j b_l, by binary response; 0 is answered by a fair coin.  Each user reads the
stream (subkey, round, global user id), two words a report: the place in the low half of the first, and the answer.
Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from _kernels._chacha20 cimport Streams, streams_allocate, streams_next, streams_open

include "_level.pxi"

cdef extern from "_kernels/_shuffled_sketch.h" namespace "fastfedrec" nogil:
    cdef cppclass SketchPlan:
        const int16_t* signs
        Py_ssize_t n_rotations
        Py_ssize_t n_reports
        Py_ssize_t n_terms
        int64_t span
        int n_passes
        int n_sides

    void sketch_cells(const SketchPlan& plan, const uint32_t* places, Py_ssize_t n, int32_t* cells) noexcept
    void sketch_reports(
        const SketchPlan& plan, const int32_t* items, Py_ssize_t n, const uint64_t* words, int16_t* sketches,
        uint32_t* places, int32_t* cells, int8_t* answers,
    ) noexcept

cdef enum:
    CHUNK = 16                # users a thread takes at a time


cdef struct Scratch:
    # One thread's memory.
    Streams streams
    int16_t* sketches         # (n_rotations n_sides + 1, 2^n_passes)
    uint32_t* places          # (n_reports,)
    int32_t* cells            # (n_reports, n_terms)
    int8_t* answers           # (n_reports,)


cdef bint _allocate(Scratch* s, const SketchPlan* plan) noexcept nogil:
    cdef bint has_streams = streams_allocate(&s.streams, 2 * plan.n_reports)
    s.sketches = <int16_t*>malloc(((plan.n_rotations * plan.n_sides + 1) << plan.n_passes) * sizeof(int16_t))
    s.places = <uint32_t*>malloc(plan.n_reports * sizeof(uint32_t))
    s.cells = <int32_t*>malloc(plan.n_reports * plan.n_terms * sizeof(int32_t))
    s.answers = <int8_t*>malloc(plan.n_reports)
    return has_streams and s.sketches != NULL and s.places != NULL and s.cells != NULL and s.answers != NULL


cdef void _release(Scratch* s) noexcept nogil:
    free(s.streams.buffer)
    free(s.sketches)
    free(s.places)
    free(s.cells)
    free(s.answers)


def private_round(
    const int64_t[::1] indptr,       # IN  (n_users + 1,)
    const int32_t[::1] indices,      # IN  (n_interactions,)
    const int16_t[:, :, ::1] signs,  # IN  (n_rotations, n_sides, 2^n_passes), +1 or -1
    const uint64_t[::1] users,       # IN  (n_users,), global user ids
    const uint32_t[::1] subkey,      # IN  (8,)
    int32_t[:, ::1] sums,            # OUT (n_threads, n_cells), zeros; of +-1 answers, fewer than 2^31 of them
    uint32_t[::1] report_places,     # OUT (n_users * n_reports,) or (0,) where only sums are wanted
    uint8_t[::1] report_bits,        # OUT the same length, 1 for +
    int64_t[::1] failed,             # OUT (n_threads,), zeros; 1 where a thread had no memory
    int n_passes,
    Py_ssize_t n_terms,
    int64_t span,
    Py_ssize_t n_reports,
    uint32_t round_number,
    int n_threads,
):
    """All reports of a shard, added up by cell (integers, so in any order) or written out one by one."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_chunks = (n_users + CHUNK - 1) // CHUNK, chunk
    cdef const int32_t* items = NULL
    cdef int32_t* totals = NULL
    cdef uint32_t* places = NULL
    cdef uint8_t* bits = NULL
    cdef Scratch* scratch
    cdef SketchPlan plan
    cdef int thread
    if indices.shape[0]:
        items = &indices[0]
    if sums.shape[1]:
        totals = &sums[0, 0]
    if report_bits.shape[0]:
        places, bits = &report_places[0], &report_bits[0]
    if n_users == 0:
        return
    plan.signs, plan.n_rotations, plan.n_sides = &signs[0, 0, 0], signs.shape[0], <int>signs.shape[1]
    plan.n_passes, plan.n_terms, plan.span, plan.n_reports = n_passes, n_terms, span, n_reports
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <Scratch*>calloc(1, sizeof(Scratch))
        if scratch == NULL or not _allocate(scratch, &plan):
            failed[thread] = 1
        for chunk in prange(n_chunks, schedule="dynamic"):
            if not failed[thread]:
                _report_chunk(
                    scratch,
                    &plan,
                    &indptr[0],
                    items,
                    &users[0],
                    &subkey[0],
                    totals + thread * sums.shape[1],
                    places,
                    bits,
                    round_number,
                    chunk * CHUNK,
                    min(n_users, (chunk + 1) * CHUNK),
                )
        if scratch != NULL:
            _release(scratch)
        free(scratch)


cdef void _report_chunk(
    Scratch* s,
    const SketchPlan* plan,
    const int64_t* indptr,
    const int32_t* items,
    const uint64_t* users,
    const uint32_t* subkey,
    int32_t* sums,            # IN/OUT, unless single reports are wanted
    uint32_t* places,         # OUT of all users; NULL where sums are wanted
    uint8_t* bits,            # OUT likewise
    uint32_t round_number,
    Py_ssize_t start,
    Py_ssize_t stop,
) noexcept nogil:
    """Report and add up for some users."""
    cdef Py_ssize_t k = plan.n_reports, u, r, t
    streams_open(&s.streams, subkey, round_number, users + start, stop - start)
    for u in range(start, stop):
        sketch_reports(
            plan[0], items + indptr[u], indptr[u + 1] - indptr[u], streams_next(&s.streams), s.sketches, s.places,
            s.cells, s.answers,
        )
        for r in range(k):
            if places == NULL:
                for t in range(plan.n_terms):
                    sums[s.cells[r * plan.n_terms + t]] += s.answers[r]
            else:
                places[u * k + r] = s.places[r]
                bits[u * k + r] = s.answers[r] > 0


def collect_reports(
    const uint32_t[::1] places,      # IN  (n_reports,)
    const uint8_t[::1] bits,         # IN  (n_reports,), 1 for +, 0 for -
    int64_t[::1] sums,               # IN/OUT (n_rotations 2^(n_sides n_passes),)
    int32_t[::1] cells,              # SCRATCH (n_terms,)
    Py_ssize_t n_rotations,
    int n_sides,
    int n_passes,
):
    """Add up single reports by cell, as `private_round` does."""
    cdef Py_ssize_t r, t
    cdef SketchPlan plan
    plan.n_rotations, plan.n_sides, plan.n_passes, plan.n_terms = n_rotations, n_sides, n_passes, cells.shape[0]
    with nogil:
        for r in range(places.shape[0]):
            sketch_cells(plan, &places[r], 1, &cells[0])
            for t in range(cells.shape[0]):
                sums[cells[t]] += 2 * <int64_t>bits[r] - 1
