"""Piecewise and hybrid mechanisms for a real t in [-1, 1] on integers (piecewise.md).

One 64-bit word a value, cut into three parts:

    [0, n_cells * low)            the same cell count for every user: cell = word // low
    then window * extra words     a window of `window` cells, at the position of t, each `extra` words more likely
    the rest, 2 * half words      binary response: `plus` with half + offset of them, else `minus`

The window begins within cell `start`, `shift` words into it, with (start * extra + shift) proportional to t + 1.  So a
cell has low words and at most `extra` more, for every rounding error of start and shift.  Inputs are trusted.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, mulhi64, stream_next, stream_open

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/core/_branchless.h" namespace "fastfedrec" nogil:
    uint64_t bits_of(double number) noexcept
    double number_of(uint64_t bits) noexcept
    uint64_t mask_below(uint64_t a, uint64_t b) noexcept
    uint64_t mask_below_63(uint64_t a, uint64_t b) noexcept
    uint64_t min_63(uint64_t a, uint64_t b) noexcept
    uint64_t choose(uint64_t mask, uint64_t a, uint64_t b) noexcept
    double bounded_unit(double number) noexcept
    uint64_t share_of(double part, uint64_t whole) noexcept
    const uint64_t SIGN_BIT

cdef enum:
    BLOCK = 65536             # values a stream; part of the stream's definition

ctypedef fused Real:
    float
    double


cdef struct Plan:
    uint64_t n_cells
    uint64_t window           # cells
    uint64_t low              # words of every cell
    uint64_t extra            # words more within the window
    uint64_t low_inverse      # (2^64 - 1) // low, or 0
    uint64_t extra_inverse    # (2^64 - 1) // extra, or 0
    uint64_t half             # half of the words for binary response
    uint64_t span             # largest offset from half, at most half
    uint64_t minus            # report of a binary response
    uint64_t plus


cdef inline void _locate_window(double t, const Plan* plan, uint64_t* start, uint64_t* shift) noexcept nogil:
    """Compute where the window of t in [-1, 1] begins."""
    cdef uint64_t free_cells = plan.n_cells - plan.window
    # The product is from 0 to free_cells, and so is `start`; start + window <= n_cells.
    cdef double cells = 0.5 * (t + 1.0) * <double>free_cells
    start[0] = min_63(<uint64_t><int64_t>cells, free_cells)
    # In the last position the window ends with the last cell, so there is no shift.
    shift[0] = share_of(cells - <double><int64_t>start[0], plan.extra) & mask_below_63(start[0], free_cells)


cdef inline uint64_t _n_positive(double t, const Plan* plan) noexcept nogil:
    """Return the number of the remaining words that mean `plus` for t in [-1, 1]."""
    # half + offset is from half - span to half + span, so within the remaining words.
    cdef uint64_t offset = share_of(number_of(bits_of(t) & ~SIGN_BIT), plan.span)
    cdef uint64_t sign = 0 - (bits_of(t) >> 63)  # all ones for a number below 0
    return plan.half + ((offset ^ sign) - sign)


cdef inline uint64_t _divide(uint64_t word, uint64_t divisor, uint64_t inverse, uint64_t* remainder) noexcept nogil:
    """Return word // divisor for inverse = (2^64 - 1) // divisor, which takes less time than a division."""
    # inverse >= 2^64 / divisor - 1, so the product's high half is the quotient or one less.
    cdef uint64_t quotient = mulhi64(word, inverse)
    cdef uint64_t is_less
    remainder[0] = word - quotient * divisor
    is_less = remainder[0] >= divisor
    remainder[0] -= divisor & (0 - is_less)
    return quotient + is_less


cdef inline uint16_t _report(double t, uint64_t word, const Plan* plan) noexcept nogil:
    cdef uint64_t start, shift, cell, remainder
    cdef uint64_t base_words = plan.n_cells * plan.low, window_words = plan.window * plan.extra
    # The two branches depend on the word alone; all choices by t are without a branch.
    if word < base_words:
        # word < n_cells low, so low > 0 and the cell is below n_cells.
        return <uint16_t>_divide(word, plan.low, plan.low_inverse, &remainder)
    word -= base_words
    t = bounded_unit(t)
    if word < window_words:
        _locate_window(t, plan, &start, &shift)
        # word < window extra, so extra > 0 and cell < window.
        cell = _divide(word, plan.extra, plan.extra_inverse, &remainder)
        # start + (word + shift) // extra: the window begins `shift` words into its first cell.
        return <uint16_t>(start + cell + 1 + mask_below(remainder, plan.extra - shift))
    return <uint16_t>choose(mask_below(word - window_words, _n_positive(t, plan)), plan.plus, plan.minus)


cdef Plan _plan(const uint64_t[::1] numbers) noexcept:
    cdef Plan plan
    plan.n_cells, plan.window, plan.low, plan.extra = numbers[0], numbers[1], numbers[2], numbers[3]
    plan.half, plan.span, plan.minus, plan.plus = numbers[4], numbers[5], numbers[6], numbers[7]
    plan.low_inverse = <uint64_t>-1 // plan.low if plan.low else 0
    plan.extra_inverse = <uint64_t>-1 // plan.extra if plan.extra else 0
    return plan


def placements(
    const double[::1] values,      # IN  (n,)
    const uint64_t[::1] numbers,   # IN  (8,), as in Plan
    uint64_t[:, ::1] out,          # OUT (n, 3): start, shift, positive
):
    """Write the integers that the proof uses, for tests and for exact tables."""
    cdef Plan plan = _plan(numbers)
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        _locate_window(bounded_unit(values[i]), &plan, &out[i, 0], &out[i, 1])
        out[i, 2] = _n_positive(bounded_unit(values[i]), &plan)


def report_words(
    const double[::1] values,      # IN  (n,)
    const uint64_t[::1] words,     # IN  (n,)
    const uint64_t[::1] numbers,   # IN  (8,), as in Plan
    uint16_t[::1] out,             # OUT (n,)
):
    """Return the report of each value for a given word, for tests at the edges."""
    cdef Plan plan = _plan(numbers)
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        out[i] = _report(values[i], words[i], &plan)


def report_values(
    const Real[::1] values,        # IN  (n,)
    uint16_t[::1] out,             # OUT (n,)
    const uint64_t[::1] numbers,   # IN  (8,), as in Plan
    const uint32_t[::1] subkey,    # IN  (8,)
    uint32_t round_number,
    int n_threads,
):
    """Draw one word a value; block b of 65,536 values reads the stream (subkey, round, b)."""
    cdef Py_ssize_t n = values.shape[0], n_blocks = (n + BLOCK - 1) // BLOCK, b
    cdef Plan plan = _plan(numbers)
    if n == 0:
        return
    # A block has separate values, words and reports.
    for b in prange(n_blocks, nogil=True, schedule="static", num_threads=<int>min(<Py_ssize_t>n_threads, n_blocks)):
        _report_block(&values[0], &out[0], b * BLOCK, min(n, (b + 1) * BLOCK), &plan, &subkey[0], round_number, b)


cdef void _report_block(
    const Real* values, uint16_t* out, Py_ssize_t start, Py_ssize_t stop, const Plan* plan, const uint32_t* subkey,
    uint32_t round_number, uint64_t block,
) noexcept nogil:
    cdef Stream stream
    cdef Py_ssize_t i
    stream_open(&stream, subkey, round_number, block)
    for i in range(start, stop):
        out[i] = _report(values[i], stream_next(&stream), plan)
