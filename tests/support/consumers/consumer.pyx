# cython: language_level=3, boundscheck=False
"""A consumer of the C API in Cython, with the results that consumer.c has."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from fastfedrec._kernels.capi cimport (
    FFR_VERSION, ffr_als_close, ffr_als_open_f, ffr_als_scratch_bytes, ffr_als_solve_f, ffr_binary_response,
    ffr_binary_responses, ffr_clip_row_d, ffr_discrete_gaussian, ffr_discrete_laplace, ffr_stream_bytes,
    ffr_stream_next, ffr_stream_open, ffr_stream_read, ffr_version,
)

import numpy as np

if ffr_version() >> 16 != FFR_VERSION >> 16:
    raise ImportError("compile this module again")


def run(
    const uint32_t[::1] subkey, const double[::1] values, const int64_t[::1] span, const uint64_t[::1] laplace,
    const uint64_t[::1] gaussian, const float[:, ::1] item_factors, const double[:, ::1] gram,
    const int64_t[::1] indptr, const int32_t[::1] items,
):
    cdef uint64_t[::1] words = np.empty(300, np.uint64)
    cdef int8_t[::1] answers = np.empty(values.shape[0], np.int8)
    cdef int64_t[::1] laplaces = np.empty(20, np.int64), gaussians = np.empty(20, np.int64)
    cdef double[::1] clipped = np.empty(values.shape[0])
    cdef float[:, ::1] users = np.empty((indptr.shape[0] - 1, item_factors.shape[1]), np.float32)
    cdef void* stream = malloc(ffr_stream_bytes())
    cdef void* handle
    cdef void* scratch
    cdef Py_ssize_t i
    with nogil:
        ffr_stream_open(stream, &subkey[0], 0, 0)
        words[0] = ffr_stream_next(stream)
        ffr_stream_read(stream, &words[1], 299)
        ffr_stream_open(stream, &subkey[0], 1, 0)
        answers[0] = ffr_binary_response(stream, values[0], span[0])
        ffr_binary_responses(stream, &values[1], values.shape[0] - 1, span[0], &answers[1])
        ffr_stream_open(stream, &subkey[0], 2, 0)
        for i in range(20):
            laplaces[i] = ffr_discrete_laplace(stream, &laplace[0])
        ffr_stream_open(stream, &subkey[0], 3, 0)
        for i in range(20):
            gaussians[i] = ffr_discrete_gaussian(stream, &gaussian[0])
        ffr_clip_row_d(&values[0], &clipped[0], values.shape[0], 0.5, 2)
        handle = ffr_als_open_f(&item_factors[0, 0], &gram[0, 0], item_factors.shape[0], item_factors.shape[1], 2.0, 0)
        scratch = malloc(ffr_als_scratch_bytes(handle))
        ffr_als_solve_f(handle, &indptr[0], &items[0], NULL, 0, users.shape[0], scratch, &users[0, 0])
        ffr_als_close(handle)
        free(scratch)
        free(stream)
    return [
        np.asarray(words), np.asarray(answers), np.asarray(laplaces), np.asarray(gaussians), np.asarray(clipped),
        np.asarray(users),
    ]
