"""Functions that Numba compiles, each for one or two calls of `fastfedrec.numba`."""

import numba
import numpy as np

from fastfedrec import Key
from fastfedrec import numba as private
from fastfedrec.mechanisms import RoundedGaussian

KEY = Key.from_seed(1)
SUBKEY = private.subkey(KEY, "test")
N_BLOCKS = 264  # position of the number of blocks left in the state of a stream
TABLE = private.noise_table(RoundedGaussian(20))
GLOBAL = np.zeros(4, np.uint64)  # Numba stores a read-only copy in compiled functions


@numba.njit(nogil=True)
def opened(subkey, round_number, user):
    stream = private.make_stream()
    private.open_stream(stream, subkey, round_number, user)
    return stream


@numba.njit(nogil=True)
def opened_at(stream, subkey):
    private.open_stream(stream, subkey, 0, 0)


@numba.njit(nogil=True)
def read(stream, n_single, n):
    out = np.empty(n, np.uint64)
    for i in range(n_single):
        out[i] = private.next_word(stream)
    private.read_words(stream, out[n_single:])
    return out


@numba.njit(nogil=True)
def numbers(stream, bound, n):
    uniforms, integers = np.empty(n), np.empty(n, np.uint64)
    for i in range(n):
        uniforms[i] = private.uniform(stream)
    for i in range(n):
        integers[i] = private.below(stream, bound)
    return uniforms, integers


@numba.njit(nogil=True)
def several_below(stream, bound):
    return private.below(stream, bound)


@numba.njit(nogil=True)
def answers(stream, values, span, words):
    single, block, given = (
        np.empty(len(values), np.int8),
        np.empty(len(values), np.int8),
        np.empty(len(values), np.int8),
    )
    for i in range(len(values)):
        single[i] = private.respond(stream, values[i], span)
    private.respond_values(stream, values, span, block)
    private.answer_values(values, words, span, given)
    return single, block, given


@numba.njit(nogil=True)
def laplaces(stream, parameters, n):
    out = np.empty(n, np.int64)
    for i in range(n):
        out[i] = private.laplace(stream, parameters)
    return out


@numba.njit(nogil=True)
def gaussians(stream, parameters, n):
    out = np.empty(n, np.int64)
    for i in range(n):
        out[i] = private.gaussian(stream, parameters)
    return out


@numba.njit(nogil=True)
def tabled(stream, table, n):
    out = np.empty(n, np.int64)
    for i in range(n):
        out[i] = private.table_noise(stream, table)
    return out


@numba.njit(nogil=True)
def clipped(rows, bound, order):
    out, is_finite = np.empty_like(rows), np.empty(len(rows), np.bool_)
    for i in range(len(rows)):
        is_finite[i] = private.clip_row(rows[i], out[i], bound, order)
    return out, is_finite


@numba.njit(nogil=True)
def solved(indptr, items, values, item_factors, gram, weight, size):
    n_users, first = len(indptr) - 1, len(indptr)
    out = np.empty((n_users, item_factors.shape[1]), item_factors.dtype)
    handle = private.als_open(item_factors, gram, weight, values is not None)
    scratch = private.als_scratch(handle)
    for start in range(0, n_users, size):
        last = min(start + size, n_users)
        singular = private.als_solve_users(handle, indptr, items, values, start, last, scratch, out[start:])
        if singular < last:
            first = min(first, singular)
    private.als_close(handle)
    return out, first


@numba.njit(nogil=True)
def read_into(stream, out):
    private.read_words(stream, out)


@numba.njit(nogil=True)
def read_into_global(stream):
    private.read_words(stream, GLOBAL)


@numba.njit(nogil=True)
def clip_into(row, out):
    private.clip_row(row, out, 1.0, 2)


@numba.njit(nogil=True)
def left(stream):
    return private.words_left(stream)


@numba.njit(nogil=True)
def respond_to(stream, values, span):
    private.respond_values(stream, values, span, np.empty(len(values), np.int8))


@numba.njit(nogil=True)
def answered(values, words, span):
    private.answer_values(values, words, span, np.empty(len(values), np.int8))


@numba.njit(nogil=True)
def prepared(item_factors, gram, weight):
    return private.als_open(item_factors, gram, weight, False)


@numba.njit(nogil=True)
def solved_by(handle, indptr, items, first, last, out):
    private.als_solve_users(handle, indptr, items, None, first, last, private.als_scratch(handle), out)


@numba.njit(nogil=True)
def scratch_of(handle):
    return private.als_scratch(handle)


@numba.njit(nogil=True)
def closed(handle):
    private.als_close(handle)
