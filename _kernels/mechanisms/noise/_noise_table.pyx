"""Weights and thresholds of noise tables, in integers, equal to mechanisms.noise.noise_table to the last bit.

Rows of words are integers, the lowest 64 bits first.  Inputs are trusted.
"""
from libc.stdint cimport uint64_t

cdef extern from "_kernels/mechanisms/noise/_wide.h" namespace "fastfedrec" nogil:
    cdef cppclass Weight:
        uint64_t* words

    cdef cppclass Ratio:
        uint64_t* words

    cdef cppclass Coefficient:
        pass

    cdef cppclass Pair "fastfedrec::Wide<2>":
        uint64_t* words

    Weight scaled(const Weight& weight, const Ratio& ratio) noexcept
    Ratio scaled(const Ratio& a, const Ratio& ratio) noexcept
    Weight integrated(
        const Weight& weight, const Coefficient* coefficients, int n, uint64_t square, int bits
    ) noexcept
    Pair threshold(const Weight& part, const Weight& total, const Ratio& inverse) noexcept
    void add(Weight& a, const Weight& b) noexcept


def fill_weights(
    const uint64_t[::1] ratio,             # IN  (4,) of weight 1 to weight 0
    const uint64_t[::1] ratio_of_ratios,   # IN  (4,) or (0,) where all ratios are equal
    uint64_t[:, ::1] out,                  # OUT (n, 5) weights from 2^256 down to the first one below 2^128
):
    """Write the weights; return their number."""
    cdef Weight* weights = <Weight*>&out[0, 0]
    cdef Ratio current = (<const Ratio*>&ratio[0])[0]
    cdef const Ratio* step = <const Ratio*>&ratio_of_ratios[0] if ratio_of_ratios.shape[0] else NULL
    cdef Py_ssize_t n = 1
    # The first weight is 1, so 2^256: 256 bits are after the binary point.
    out[0, :4] = 0
    out[0, 4] = 1
    # Words 2 to 4 are 0 below 2^128.
    while n < out.shape[0] and (out[n - 1, 4] or out[n - 1, 3] or out[n - 1, 2]):
        weights[n] = scaled(weights[n - 1], current)
        if step != NULL:
            current = scaled(current, step[0])  # ratio k + 1 is ratio k times the ratio of ratios
        n += 1
    return n


def integrate_cells(
    const uint64_t[:, ::1] coefficients,   # IN     (n_coefficients, 6) of x^2 / 2^bits, from the last to the first
    uint64_t[:, ::1] weights,              # IN/OUT (n, 5) of x = 0, 1, ...
    int bits,
):
    """Multiply each weight by a polynomial of its index."""
    cdef Weight* out = <Weight*>&weights[0, 0]
    cdef const Coefficient* series = <const Coefficient*>&coefficients[0, 0]
    cdef int n = <int>coefficients.shape[0]
    cdef Py_ssize_t x
    for x in range(weights.shape[0]):
        out[x] = integrated(out[x], series, n, <uint64_t>x * <uint64_t>x, bits)  # x^2 fits into 64 bits if x < 2^32


def fill_thresholds(
    const uint64_t[:, ::1] weights,        # IN  (reach + 1, 5) of 0, 1, ..., and of -1, -2, ...
    const uint64_t[::1] total,             # IN  (5,)
    const uint64_t[::1] inverse,           # IN  (4,) 2^448 / total, rounded down
    uint64_t[::1] high,                    # OUT (2 reach,)
    uint64_t[::1] low,                     # OUT (2 reach,)
):
    """Compute for all values but the last the cumulative weights over their total, in units of 2^-128, rounded down."""
    cdef const Weight* terms = <const Weight*>&weights[0, 0]
    cdef const Weight* whole = <const Weight*>&total[0]
    cdef Py_ssize_t reach = weights.shape[0] - 1, k
    cdef Weight part
    cdef Pair cumulative
    part.words[0] = part.words[1] = part.words[2] = part.words[3] = part.words[4] = 0
    for k in range(2 * reach):
        # Values are in the order -reach, ..., -1, 0, ..., reach - 1: weights are symmetric.
        add(part, terms[reach - k if k < reach else k - reach])
        cumulative = threshold(part, whole[0], (<const Ratio*>&inverse[0])[0])
        low[k], high[k] = cumulative.words[0], cumulative.words[1]
