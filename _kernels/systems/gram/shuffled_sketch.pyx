"""Reports of a shuffled sketch: the largest of some random entries of a rotated row, or of a product of two rows.

For a user with items S, public signs D and the Hadamard matrix H of a power of two, let a = H D 1_S and b = H D' 1_S be
the two sides of a rotation.  A position has 32 bits: high bits select a rotation, and low bits an entry of it (one
side) or an entry of each side, the cell.  A report draws positions, its candidates, and is about the candidate with the
largest entry a_j, or a_j b_l, in absolute value (the first of equal ones), with its sign.  If a word is below `clones`,
it is about the first candidate, with a fair coin.  A coin answers for an entry of 0.  Each user reads the stream
(subkey, round, global user id): for each report its candidates, two in a word, the low half first, and one word, with
the coin as its lowest bit.

The number of cells is the square of the number of items, so direct additions to random cells would wait for memory.
Answers are sorted first: each chunk of users writes its answers by bucket, a range of neighbouring cells.  Then one
thread adds up each bucket, which fits into the cache of a processor, from all chunks.  Inputs are trusted.
"""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from _kernels.core._chacha20 cimport Streams, streams_allocate, streams_next, streams_open
from _kernels.core._lines cimport malloc_lines

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/systems/gram/_shuffled_sketch.h" namespace "fastfedrec" nogil:
    cdef cppclass SketchPlan:
        const int16_t* signs
        Py_ssize_t n_rotations
        Py_ssize_t n_reports
        Py_ssize_t n_candidates
        uint64_t clones
        int n_passes
        int n_sides

    void sketch_cells(const SketchPlan& plan, const uint32_t* positions, Py_ssize_t n, uint32_t* cells) noexcept
    void sketch_reports(
        const SketchPlan& plan, const int32_t* items, Py_ssize_t n, const uint64_t* words, int16_t* sketches,
        uint32_t* positions, uint8_t* bits,
    ) noexcept

cdef extern from "_kernels/compute/_hadamard.h" namespace "fastfedrec" nogil:
    void hadamard_transform(int64_t* x, int64_t* scratch, int n_passes) noexcept

cdef enum:
    COLUMNS = 8               # columns of 64 bits, a cache line, transformed at a time


cdef struct Scratch:
    # The memory of one thread.
    Streams streams
    int16_t* sketches         # (n_rotations n_sides, 2^n_passes)
    uint32_t* positions       # (chunk, n_reports)
    uint8_t* bits             # (chunk, n_reports)


cdef bint _allocate(Scratch* s, const SketchPlan* plan, Py_ssize_t chunk) noexcept nogil:
    cdef bint has_streams = streams_allocate(
        &s.streams, plan.n_reports * ((plan.n_candidates + 1) // 2 + 1)
    )
    s.sketches = <int16_t*>malloc_lines((plan.n_rotations * plan.n_sides << plan.n_passes) * sizeof(int16_t))
    s.positions = <uint32_t*>malloc(chunk * plan.n_reports * sizeof(uint32_t))
    s.bits = <uint8_t*>malloc(chunk * plan.n_reports)
    return has_streams and s.sketches != NULL and s.positions != NULL and s.bits != NULL


cdef void _release(Scratch* s) noexcept nogil:
    free(s.streams.buffer)
    free(s.sketches)
    free(s.positions)
    free(s.bits)


def private_round(
    const int64_t[::1] indptr,       # IN  (n_users + 1,)
    const int32_t[::1] indices,      # IN  (n_interactions,)
    const int16_t[:, :, ::1] signs,  # IN  (n_rotations, n_sides, 2^n_passes), +1 or -1
    const uint64_t[::1] users,       # IN  (n_users,), global user ids
    const uint32_t[::1] subkey,      # IN  (8,)
    uint32_t[::1] answers,           # OUT (n_users * n_reports,), by chunk and bucket: cell << 1 | bit; or (0,)
    int32_t[:, ::1] ends,            # OUT (n_chunks, n_buckets), end of each bucket in a chunk; or (0, 0)
    uint32_t[::1] report_positions,  # OUT (n_users * n_reports,), or (0,) for answers
    uint8_t[::1] report_bits,        # OUT the same length, 1 for +
    int64_t[::1] failed,             # OUT (n_threads,), zeros; 1 where a thread had no memory
    int n_passes,
    Py_ssize_t n_candidates,
    uint64_t clones,                 # even; a word below it makes a report independent of the user's items
    Py_ssize_t n_reports,
    Py_ssize_t chunk,                # users that a thread takes at a time
    int shift,                       # a bucket has 2^shift cells
    uint32_t round_number,
    int n_threads,
):
    """Draw all reports of a shard: write their answers in order for `add_answers`, or single reports."""
    cdef Py_ssize_t n_users = indptr.shape[0] - 1, n_chunks = (n_users + chunk - 1) // chunk, start, stop, c, u
    cdef const int32_t* items = NULL
    cdef uint32_t* positions = NULL
    cdef uint8_t* bits = NULL
    cdef Scratch* scratch
    cdef SketchPlan plan
    cdef int thread
    if indices.shape[0]:
        items = &indices[0]
    if report_bits.shape[0]:
        positions, bits = &report_positions[0], &report_bits[0]
    if n_users == 0:
        return
    plan.signs, plan.n_rotations, plan.n_sides = &signs[0, 0, 0], signs.shape[0], <int>signs.shape[1]
    plan.n_passes, plan.n_candidates, plan.clones, plan.n_reports = n_passes, n_candidates, clones, n_reports
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        scratch = <Scratch*>calloc(1, sizeof(Scratch))
        if scratch == NULL or not _allocate(scratch, &plan, chunk):
            failed[thread] = 1
        # A chunk of users belongs to one thread: its range of `answers`, `ends` and reports.
        for c in prange(n_chunks, schedule="dynamic"):
            if not failed[thread]:
                start = c * chunk
                stop = min(n_users, start + chunk)
                streams_open(&scratch.streams, &subkey[0], round_number, &users[start], stop - start)
                for u in range(start, stop):
                    sketch_reports(
                        plan,
                        items + indptr[u],
                        indptr[u + 1] - indptr[u],
                        streams_next(&scratch.streams),
                        scratch.sketches,
                        positions + u * n_reports if positions != NULL else scratch.positions + (u - start) * n_reports,
                        bits + u * n_reports if positions != NULL else scratch.bits + (u - start) * n_reports,
                    )
                if positions == NULL:
                    _order(
                        scratch,
                        &plan,
                        stop - start,
                        shift,
                        ends.shape[1],
                        &answers[start * n_reports],
                        &ends[c, 0],
                    )
        if scratch != NULL:
            _release(scratch)
        free(scratch)


def add_answers(
    const uint32_t[::1] answers,     # IN  as from `private_round`
    const int32_t[:, ::1] ends,      # IN  (n_chunks, n_buckets)
    int64_t[::1] sums,               # IN/OUT (n_rotations 2^(n_sides n_passes),)
    Py_ssize_t chunk_answers,        # of each chunk but the last
    int n_threads,
):
    """Add +1 or -1 to the cell of each answer."""
    cdef Py_ssize_t bucket, c, i
    cdef const uint32_t* chunk
    # A bucket belongs to one thread: no other thread writes to its cells.
    for bucket in prange(ends.shape[1], schedule="dynamic", nogil=True, num_threads=n_threads):
        for c in range(ends.shape[0]):
            chunk = &answers[c * chunk_answers]
            for i in range(ends[c, bucket - 1] if bucket else 0, ends[c, bucket]):
                sums[chunk[i] >> 1] += 2 * <int64_t>(chunk[i] & 1) - 1  # +1 or -1


cdef void _order(
    Scratch* s, const SketchPlan* plan, Py_ssize_t n_users, int shift, Py_ssize_t n_buckets, uint32_t* answers,
    int32_t* ends,
) noexcept nogil:
    """Sort the answers of a chunk by bucket, by counting."""
    cdef Py_ssize_t n = n_users * plan.n_reports, i
    cdef uint32_t* cells = s.positions
    cdef int32_t before = 0, count
    sketch_cells(plan[0], s.positions, n, cells)  # in place
    memset(ends, 0, n_buckets * sizeof(int32_t))
    # Counting sort by bucket: cells >> shift is below n_buckets.
    for i in range(n):
        ends[cells[i] >> shift] += 1
    for i in range(n_buckets):
        count = ends[i]
        ends[i] = before  # first the start of the bucket, and after all answers its end
        before += count
    for i in range(n):
        answers[ends[cells[i] >> shift]] = cells[i] << 1 | s.bits[i]
        ends[cells[i] >> shift] += 1


def collect_reports(
    const uint32_t[::1] positions,   # IN  (n_reports,)
    const uint8_t[::1] bits,         # IN  (n_reports,), 1 for +, 0 for -
    int64_t[::1] sums,               # IN/OUT (n_rotations 2^(n_sides n_passes),)
    Py_ssize_t n_rotations,
    int n_sides,
    int n_passes,
):
    """Add up single reports by cell, like `private_round` and `add_answers`."""
    cdef Py_ssize_t r
    cdef uint32_t cell
    cdef SketchPlan plan
    plan.n_rotations, plan.n_sides, plan.n_passes = n_rotations, n_sides, n_passes
    with nogil:
        for r in range(positions.shape[0]):
            sketch_cells(plan, &positions[r], 1, &cell)
            sums[cell] += 2 * <int64_t>bits[r] - 1


def decode_pairs(
    const int64_t[:, ::1] sums,      # IN  (2^n_passes, 2^n_passes), of one rotation
    const int16_t[:, ::1] signs,     # IN  (2, 2^n_passes), of its two sides
    int64_t[:, ::1] half,            # SCRATCH (2^n_passes, n_items)
    int64_t[:, ::1] scratch,         # SCRATCH (n_threads, `n_scratch`)
    int64_t[:, ::1] decoded,         # IN/OUT (n_items, n_items), with the columns of sums as rows
    int n_passes,
    int n_threads,
):
    """Add the transpose of D H C H D', cut to the items, for the sums C of a rotation; modulo 2^64."""
    cdef Py_ssize_t length = 1 << n_passes, n_items = decoded.shape[0], n_blocks = (n_items + COLUMNS - 1) // COLUMNS
    cdef Py_ssize_t i, block
    cdef int thread
    with nogil, parallel(num_threads=n_threads):
        thread = threadid()
        # Rows come first, then columns: each belongs to one thread, and all threads meet between the loops.
        for i in prange(length, schedule="static"):
            _transform_row(&sums[i, 0], &signs[1, 0], &scratch[thread, 0], n_items, n_passes, &half[i, 0])
        for block in prange(n_blocks, schedule="static"):
            _transform_columns(half, &signs[0, 0], &scratch[thread, 0], block * COLUMNS, n_passes, decoded)


def n_scratch(int n_passes):
    """Return the size of the scratch of a thread of `decode_pairs`, in numbers."""
    return <Py_ssize_t>(COLUMNS + 1) << n_passes


cdef void _transform_row(
    const int64_t* row, const int16_t* signs, int64_t* scratch, Py_ssize_t n_items, int n_passes, int64_t* out,
) noexcept nogil:
    """Apply H and the signs of the items to one row of the sums."""
    cdef Py_ssize_t i
    # Apply H to the row, then the signs of the items; positions after n_items are dropped.
    memcpy(scratch, row, sizeof(int64_t) << n_passes)
    hadamard_transform(scratch, scratch + (<Py_ssize_t>1 << n_passes), n_passes)
    for i in range(n_items):
        out[i] = scratch[i] * signs[i]


cdef void _transform_columns(
    const int64_t[:, ::1] half, const int16_t* signs, int64_t* scratch, Py_ssize_t first, int n_passes,
    int64_t[:, ::1] decoded,
) noexcept nogil:
    """Apply H and the signs of the items to some neighbouring columns."""
    cdef Py_ssize_t length = <Py_ssize_t>1 << n_passes, n_items = decoded.shape[0], i, c
    cdef Py_ssize_t n_columns = min(COLUMNS, n_items - first)
    cdef int64_t* column
    cdef int64_t* out
    # Several columns are side by side, so a line of `half` is read once.
    for i in range(length):
        for c in range(n_columns):
            scratch[c * length + i] = half[i, first + c]
    for c in range(n_columns):
        column = scratch + c * length
        hadamard_transform(column, scratch + COLUMNS * length, n_passes)
        out = &decoded[first + c, 0]
        for i in range(n_items):
            out[i] += column[i] * signs[i]
