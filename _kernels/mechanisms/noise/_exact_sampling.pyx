"""Exact discrete Laplace and Gaussian draws, equal bit for bit to mechanisms.noise.exact_sampling
(docs/explanation/mechanisms/noise/discrete-laplace.md).  Inputs are trusted.

Each function draws until `out` is full or words are too few for another draw, and returns the numbers of draws and of
words that they took.  -1 draws mean that a draw needs numbers that are too large: `out` is invalid then.
"""
from libc.stdint cimport int64_t, uint64_t

cdef extern from "_kernels/mechanisms/noise/_exact_sampling.h" namespace "fastfedrec" nogil:
    int64_t fill_laplace "fastfedrec::fill<fastfedrec::Laplace>"(
        const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n, int64_t& n_read
    ) noexcept
    int64_t fill_gaussian "fastfedrec::fill<fastfedrec::Gaussian>"(
        const uint64_t* numbers, const uint64_t* first, int64_t n_words, int64_t* out, int64_t n, int64_t& n_read
    ) noexcept


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
