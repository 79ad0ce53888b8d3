"""Exact discrete Laplace and Gaussian draws, equal bit for bit to mechanisms.noise.exact_sampling
(docs/explanation/mechanisms/noise/discrete-laplace.md).  Inputs are trusted.

`laplace_blocks` and `gaussian_blocks` fill `out`; they return whether no draw needed numbers that are too large, and
`out` is invalid otherwise.  `laplace` and `gaussian`, for tests, draw from given words until `out` is full or words are
too few for another draw, and return the numbers of draws and of words that they took; -1 draws mean the same failure.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

include "_kernels/core/_level.pxi"

cdef extern from "_kernels/mechanisms/noise/_exact_sampling.h" namespace "fastfedrec" nogil:
    int64_t fill_laplace "fastfedrec::fill<fastfedrec::Laplace>"(
        const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n, int64_t& n_read
    ) noexcept
    int64_t fill_gaussian "fastfedrec::fill<fastfedrec::Gaussian>"(
        const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n, int64_t& n_read
    ) noexcept
    bint fill_laplace_blocks "fastfedrec::fill_blocks<fastfedrec::Laplace>"(
        const uint64_t* numbers, const uint32_t* subkey, uint32_t round, uint64_t n_words, int64_t* out, int64_t n
    ) noexcept
    bint fill_gaussian_blocks "fastfedrec::fill_blocks<fastfedrec::Gaussian>"(
        const uint64_t* numbers, const uint32_t* subkey, uint32_t round, uint64_t n_words, int64_t* out, int64_t n
    ) noexcept


def laplace_blocks(
    const uint64_t[:, ::1] numbers,   # IN  (2, 2) numerator and denominator of the scale, each the lower word first
    const uint32_t[::1] subkey,       # IN  (8,)
    int64_t[::1] out,                 # OUT (n,)
    uint32_t round_number,
    uint64_t n_words,                 # of each stream, a multiple of 8
):
    """Draw as `laplace`, from the first `n_words` words of the streams (subkey, round, 0), (subkey, round, 1), ..."""
    cdef bint is_complete
    if out.shape[0] == 0:
        return True
    with nogil:
        is_complete = fill_laplace_blocks(&numbers[0, 0], &subkey[0], round_number, n_words, &out[0], out.shape[0])
    return is_complete


def gaussian_blocks(
    const uint64_t[:, ::1] numbers,   # IN  (5, 2) of a proposal as above, then its step, shift and denominator
    const uint32_t[::1] subkey,       # IN  (8,)
    int64_t[::1] out,                 # OUT (n,)
    uint32_t round_number,
    uint64_t n_words,                 # of each stream, a multiple of 8
):
    """Draw as `gaussian`, from the same words."""
    cdef bint is_complete
    if out.shape[0] == 0:
        return True
    with nogil:
        is_complete = fill_gaussian_blocks(&numbers[0, 0], &subkey[0], round_number, n_words, &out[0], out.shape[0])
    return is_complete


def laplace(
    const uint64_t[:, ::1] numbers,   # IN  (2, 2) numerator and denominator of the scale, each the lower word first
    const uint64_t[::1] words,        # IN  (n_words,) uniform
    int64_t[::1] out,                 # OUT (n,)
):
    """Draw numbers x with probability proportional to exp(-|x| / scale)."""
    cdef int64_t n_drawn, n_read = 0
    with nogil:
        n_drawn = fill_laplace(&numbers[0, 0], &words[0], words.shape[0], &out[0], out.shape[0], n_read)
    return n_drawn, n_read


def gaussian(
    const uint64_t[:, ::1] numbers,   # IN  (5, 2) of a proposal as above, then its step, shift and denominator
    const uint64_t[::1] words,        # IN  (n_words,) uniform
    int64_t[::1] out,                 # OUT (n,)
):
    """Draw Laplace numbers x, each kept with probability exp(-(|x| step - shift)^2 / denominator)."""
    cdef int64_t n_drawn, n_read = 0
    with nogil:
        n_drawn = fill_gaussian(&numbers[0, 0], &words[0], words.shape[0], &out[0], out.shape[0], n_read)
    return n_drawn, n_read
