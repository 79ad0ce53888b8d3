"""Symmetric integer noise by inverse tables (docs/explanation/mechanisms/noise/noise-tables.md).  Inputs are trusted.

The draw is the number of thresholds (128 bits each) at or below a uniform 128-bit number, less `reach`.  The low half
of that number is only drawn if the high half is equal to the high half of a threshold, which is very rare.
"""
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open, stream_refill
from _kernels.mechanisms.noise._search cimport find, find_tied

include "_kernels/core/_level.pxi"

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition
    BATCH = 256               # words of the buffer of a stream, and values drawn at a time
    MAX_LAYERS = 7            # layers of a standard deviation of 2^56


cdef struct Table:
    const uint64_t* high
    const uint64_t* low
    const int32_t* guide
    Py_ssize_t n              # thresholds
    int shift


def lookup(
    const uint64_t[:, ::1] words,   # IN  (n, 2), high and low halves
    int64_t[::1] out,               # OUT (n,)
    const uint64_t[::1] high,       # IN  (2 reach + 1,)
    const uint64_t[::1] low,        # IN  (2 reach + 1,)
    const int32_t[::1] guide,       # IN  (n_cells,)
    int shift,
):
    """Return the draws of given 128-bit numbers."""
    cdef Py_ssize_t n = high.shape[0] - 1, i, count
    for i in range(words.shape[0]):
        count = find(&high[0], &guide[0], shift, words[i, 0])
        if high[count] == words[i, 0]:  # the low half is only compared here
            count = find_tied(&high[0], &low[0], n, count, words[i, 0], words[i, 1])
        out[i] = count - n // 2  # n = 2 reach thresholds, so draws from -reach to reach


def add_noise(
    int64_t[::1] values,            # IN/OUT (n,)
    const uint64_t[::1] high,       # IN  (2 reach + 1,)
    const uint64_t[::1] low,        # IN  (2 reach + 1,)
    const int32_t[::1] guide,       # IN  (n_cells,)
    const uint32_t[::1] subkey,     # IN  (8,)
    int shift,
    uint32_t round_number,
    int n_threads,
):
    """Add one draw to each value, saturating; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Table table = Table(&high[0], &low[0], &guide[0], high.shape[0] - 1, shift)
    _add_blocks(values, &table, &table, &subkey[0], 1, 0, round_number, n_threads)


def add_layers(
    int64_t[::1] values,            # IN/OUT (n,)
    const uint64_t[::1] top_high,   # IN  (2 top reach + 1,)
    const uint64_t[::1] top_low,    # IN  (2 top reach + 1,)
    const int32_t[::1] top_guide,   # IN  (n_top_cells,)
    const uint64_t[::1] high,       # IN  (2 reach + 1,), of every layer below the top
    const uint64_t[::1] low,        # IN  (2 reach + 1,)
    const int32_t[::1] guide,       # IN  (n_cells,)
    const uint32_t[:, ::1] subkeys,  # IN (n_layers, 8), the top first
    int top_shift,
    int shift,
    int64_t base,
    uint32_t round_number,
    int n_threads,
):
    """Add (... (g_1 base + g_2) base + ...) base + g_L to each value, saturating, where g_l is a draw of layer l.

    Each layer has separate streams, as in `add_noise`.  Twice the largest sum of draws must fit int64.
    """
    cdef Table top = Table(&top_high[0], &top_low[0], &top_guide[0], top_high.shape[0] - 1, top_shift)
    cdef Table below = Table(&high[0], &low[0], &guide[0], high.shape[0] - 1, shift)
    if not 1 <= subkeys.shape[0] <= MAX_LAYERS:  # more layers would exceed the streams of a block
        raise ValueError(f"subkeys must be of 1 to {MAX_LAYERS} layers, got {subkeys.shape[0]}")
    _add_blocks(values, &top, &below, &subkeys[0, 0], <int>subkeys.shape[0], base, round_number, n_threads)


cdef void _add_blocks(
    int64_t[::1] values, const Table* top, const Table* below, const uint32_t* subkeys, int n_layers, int64_t base,
    uint32_t round_number, int n_threads,
):
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    if n == 0:
        return
    # A block belongs to one thread, and has separate streams: neither order nor number of threads matters.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _add_block(
            &values[b * BLOCK], min(<Py_ssize_t>BLOCK, n - b * BLOCK), top, below, subkeys, n_layers, base,
            round_number, b,
        )


cdef void _add_block(
    int64_t* values, Py_ssize_t n, const Table* top, const Table* below, const uint32_t* subkeys, int n_layers,
    int64_t base, uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream[MAX_LAYERS] streams
    cdef int64_t[BATCH] counts
    cdef int64_t[BATCH] sums
    cdef int64_t reach = 0
    cdef Py_ssize_t first = 0, size, i
    cdef int layer
    for layer in range(n_layers):
        # Layers have separate subkeys, and so separate streams.
        stream_open(&streams[layer], subkeys + 8 * layer, round_number, block)
        # This is subtracted from a sum of counts to make it a sum of draws.
        reach = base * reach + (below.n if layer else top.n) // 2
    while first < n:
        size = min(<Py_ssize_t>BATCH, n - first)
        find_next(&streams[0], top, sums, size)
        for layer in range(1, n_layers):
            find_next(&streams[layer], below, counts, size)
            for i in range(size):
                sums[i] = base * sums[i] + counts[i]  # fits into int64, because twice the largest sum does
        add_saturating(values + first, sums, size, reach)
        first += size


cdef void find_next(Stream* stream, const Table* table, int64_t* counts, Py_ssize_t n) noexcept nogil:
    """Count the thresholds at or below the next number of a stream, n times."""
    cdef Py_ssize_t i = 0, n_words, n_done
    cdef uint64_t word
    while i < n:
        # Each word is one draw, except the word after a tie.
        if stream.position == stream.end:
            stream_refill(stream)
        n_words = min(<Py_ssize_t>(stream.end - stream.position), n - i)
        # n_words <= BATCH, the capacity of the buffer of a stream.
        n_done = find_all(table.high, table.guide, table.shift, stream.buffer + stream.position, n_words, counts + i)
        stream.position += n_done
        i += n_done
        if n_done < n_words:  # a tie: the next word is its low half
            word = stream_next(stream)
            counts[i] = find_tied(
                table.high, table.low, table.n, find(table.high, table.guide, table.shift, word), word,
                stream_next(stream),
            )
            i += 1


cdef inline Py_ssize_t find_all(
    const uint64_t* high, const int32_t* guide, int shift, const uint64_t* words, Py_ssize_t n, int64_t* counts
) noexcept nogil:
    """Run `find` for each of at most BATCH words, up to the first that ties; return its number, or n.

    The few searches of more than one step are listed without a branch that cannot be predicted, and ended last.
    """
    cdef uint16_t[BATCH] unfinished
    cdef Py_ssize_t i, r, k, n_unfinished = 0
    # All searches take one step without a branch.
    for r in range(n):
        i = guide[words[r] >> shift]
        counts[r] = i + <int64_t>(high[i] < words[r])  # i < n where high[i] < word, since the sentinel is below none
    # Unfinished searches are listed: entries are always written, and kept where the count increases.
    for r in range(n):
        unfinished[n_unfinished] = <uint16_t>r
        n_unfinished += high[counts[r]] <= words[r]
    # Searches end in ascending order, so all searches before the first tie are finished.
    for k in range(n_unfinished):
        r = unfinished[k]
        while high[counts[r]] < words[r]:
            counts[r] += 1
        if high[counts[r]] == words[r]:
            return r
    return n


cdef inline void add_saturating(int64_t* values, const int64_t* draws, Py_ssize_t n, int64_t reach) noexcept nogil:
    """Add draws - reach, limited to int64 where a sum is outside; without branches, because signs of noise
    cannot be predicted, and the time must not depend on the values."""
    cdef uint64_t value, draw, total, end, is_outside
    cdef Py_ssize_t i
    for i in range(n):
        # Unsigned sums are modulo 2^64: there is no undefined overflow.
        value, draw = <uint64_t>values[i], <uint64_t>(draws[i] - reach)
        total = value + draw
        # If both summands have one sign and the sum has the other, the sum is beyond the end of that sign.
        end = ((<uint64_t>1 << 63) - 1) + (value >> 63)
        is_outside = 0 - (((value ^ total) & (draw ^ total)) >> 63)  # all ones or 0
        values[i] = <int64_t>(total ^ ((total ^ end) & is_outside))
