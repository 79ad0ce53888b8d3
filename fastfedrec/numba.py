"""Streams, randomizers and ALS for functions that Numba compiles with ``numba.njit(nogil=True, cache=True)``.

The functions call the C API of `fastfedrec.capi`: the same code as the rest of the package, at the instruction set in
use.  They run in compiled functions only, except `subkey`, `exact_numbers` and `noise_table`, which are called before
with Python's objects.  Types are checked at compilation, and numbers and lengths at each call; indices are trusted.
A thread needs a separate stream and scratch.

**No guarantee.** A guarantee depends on how the caller uses the draws: each stream (purpose, round, user) is opened
once, in one process, and `subkey` claims the key of its purpose.

Examples
--------
>>> import numba
>>> from fastfedrec import Key
>>> from fastfedrec import numba as private
>>> from fastfedrec.mechanisms import BinaryResponse
>>> @numba.njit(nogil=True)
... def answers(subkey, values, span):
...     stream, out = private.make_stream(), np.empty(len(values), np.int8)
...     private.open_stream(stream, subkey, 0, 0)
...     private.respond_values(stream, values, span, out)
...     return out
>>> import numpy as np
>>> key, channel = Key.from_seed(1), BinaryResponse(1.0)
>>> values = np.linspace(-1, 1, 1000)
>>> reports = answers(private.subkey(key, "binary_response.privatize"), values, channel.span)
>>> bool((reports == channel.privatize(values, key=key)).all())
True
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._numba_calls import refuse_python, runs_in_compiled_code
from fastfedrec.capi import exact_numbers, noise_table, subkey

__all__ = [
    "als_close",
    "als_open",
    "als_scratch",
    "als_solve_users",
    "answer_values",
    "below",
    "clip_row",
    "exact_numbers",
    "gaussian",
    "laplace",
    "make_stream",
    "next_word",
    "noise_table",
    "open_stream",
    "read_words",
    "respond",
    "respond_values",
    "subkey",
    "table_noise",
    "uniform",
    "words_left",
]

__dir__ = __all__.copy  # dir() lists only the public names

Stream = NDArray[np.uint64]

# ---- streams --------------------------------------------------------------------------------------------------------


@runs_in_compiled_code
def make_stream() -> Stream:
    """Allocate a stream, which `open_stream` must open before the first draw.

    Returns
    -------
    ndarray of uint64
        State and buffer, about 2 kB.
    """
    refuse_python()


@runs_in_compiled_code
def open_stream(stream: Stream, subkey: NDArray[np.uint32], round: int, user: int) -> None:
    """Open the stream (purpose, round, user) at its first word.

    Parameters
    ----------
    stream : ndarray of uint64
        Stream of `make_stream`, which may be open.
    subkey : ndarray of shape (8,), uint32
        Key of the purpose, of `subkey`.
    round : int
        Number of the round, below 2**32.
    user : int
        Global user id, below 2**64.
    """
    refuse_python()


@runs_in_compiled_code
def words_left(stream: Stream) -> int:
    """Return the number of words that an open stream has left, of 2**35.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.

    Returns
    -------
    int
        Number of words.
    """
    refuse_python()


@runs_in_compiled_code
def next_word(stream: Stream) -> int:
    """Read the next 64-bit word; a word after the last one stops the process.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.

    Returns
    -------
    int
        Uniform word, uint64.
    """
    refuse_python()


@runs_in_compiled_code
def read_words(stream: Stream, out: NDArray[np.uint64]) -> None:
    """Read words, faster than one at a time.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    out : ndarray of shape (n_words,), uint64
        Output array.

    Raises
    ------
    OverflowError
        The stream has fewer words left.
    """
    refuse_python()


@runs_in_compiled_code
def uniform(stream: Stream) -> float:
    """Draw a double from the open interval (0, 1), as `Key.uniform`; never for privacy.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.

    Returns
    -------
    float
        Number of 52 random bits.
    """
    refuse_python()


@runs_in_compiled_code
def below(stream: Stream, bound: int) -> int:
    """Draw an integer from [0, bound), uniform up to a bias below bound / 2**64.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    bound : int
        Upper bound, from 1.

    Returns
    -------
    int
        Integer, uint64; convert it with `numpy.int64` before arithmetic with signed integers.
    """
    refuse_python()


# ---- randomizers ----------------------------------------------------------------------------------------------------


@runs_in_compiled_code
def respond(stream: Stream, value: float, span: int) -> int:
    """Draw one answer of binary response.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    value : float
        Private value, clipped to [-1, 1]; one that is not finite counts as 0.
    span : int
        `BinaryResponse.span`.

    Returns
    -------
    int
        +1 or -1.
    """
    refuse_python()


@runs_in_compiled_code
def respond_values(stream: Stream, values: NDArray[np.float64], span: int, out: NDArray[np.int8]) -> None:
    """Draw an answer of binary response for each value, with vector code.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    values : ndarray of shape (n,), float64
        Private values, as for `respond`.
    span : int
        `BinaryResponse.span`.
    out : ndarray of shape (n,), int8
        Output array.

    Raises
    ------
    OverflowError
        The stream has fewer words left.
    """
    refuse_python()


@runs_in_compiled_code
def answer_values(values: NDArray[np.float64], words: NDArray[np.uint64], span: int, out: NDArray[np.int8]) -> None:
    """Draw answers as `respond_values`, from words that were read before.

    Parameters
    ----------
    values : ndarray of shape (n,), float64
        Private values, as for `respond`.
    words : ndarray of shape (n,), uint64
        Words of a stream, which serve no other draw.
    span : int
        `BinaryResponse.span`.
    out : ndarray of shape (n,), int8
        Output array.
    """
    refuse_python()


@runs_in_compiled_code
def laplace(stream: Stream, numbers: NDArray[np.uint64]) -> int:
    """Draw exact discrete Laplace noise.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    numbers : ndarray of shape (4,), uint64
        `exact_numbers` of a `DiscreteLaplace`.

    Returns
    -------
    int
        Draw, int64.

    Raises
    ------
    OverflowError
        The draw needs integers above 128 bits, or is none of int64.
    """
    refuse_python()


@runs_in_compiled_code
def gaussian(stream: Stream, numbers: NDArray[np.uint64]) -> int:
    """Draw exact discrete Gaussian noise.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    numbers : ndarray of shape (10,), uint64
        `exact_numbers` of a `DiscreteGaussian`.

    Returns
    -------
    int
        Draw, int64.

    Raises
    ------
    OverflowError
        The draw needs integers above 128 bits, or is none of int64.
    """
    refuse_python()


@runs_in_compiled_code
def table_noise(stream: Stream, table: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32], int]) -> int:
    """Draw integer noise from a table.

    Parameters
    ----------
    stream : ndarray of uint64
        Open stream.
    table : tuple
        `noise_table` of the noise.

    Returns
    -------
    int
        Draw, int64.
    """
    refuse_python()


@runs_in_compiled_code
def clip_row(row: NDArray[Any], out: NDArray[Any], bound: float, order: int) -> bool:
    """Clip a row to a norm of at most `bound`, exactly, as `mechanisms.clip_rows_l1` and `clip_rows_l2`.

    Parameters
    ----------
    row : ndarray of shape (n,), float32 or float64
        Row.
    out : ndarray of shape (n,)
        Output array of the same type, which may be `row`.
    bound : float
        Maximum norm, from 1e-100 to 1e100.
    order : {1, 2}
        Norm.

    Returns
    -------
    bool
        Whether all numbers were finite; `out` is zeros otherwise.
    """
    refuse_python()


# ---- least squares of users -----------------------------------------------------------------------------------------


@runs_in_compiled_code
def als_open(item_factors: NDArray[Any], gram: NDArray[np.float64], confidence_weight: float, use_values: bool) -> int:
    """Prepare users' least squares for fixed item factors; the caller must close it by `als_close`.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors), float32 or float64
        Item factors V, at most 256 columns; the handle has a copy.
    gram : ndarray of shape (n_factors, n_factors), float64
        `als.regularized_gram` of these factors, with the same confidence weight.
    confidence_weight : float
        Weight of the user's items, at least 0.
    use_values : bool
        Whether users will have values.

    Returns
    -------
    int
        Handle, which several threads may use.

    Raises
    ------
    MemoryError
        There is no memory.
    """
    refuse_python()


@runs_in_compiled_code
def als_scratch(handle: int) -> NDArray[np.uint8]:
    """Allocate the scratch of one thread for `als_solve_users`.

    Parameters
    ----------
    handle : int
        Handle of `als_open`.

    Returns
    -------
    ndarray of uint8
        Scratch.
    """
    refuse_python()


@runs_in_compiled_code
def als_solve_users(
    handle: int,
    indptr: NDArray[np.int64],
    items: NDArray[np.int32],
    values: NDArray[Any] | None,
    first: int,
    last: int,
    scratch: NDArray[np.uint8],
    out: NDArray[Any],
) -> int:
    """Solve the least squares of some users, as `als.solve_users`; blocks of 32 users are faster than single ones.

    Parameters
    ----------
    handle : int
        Handle of `als_open`.
    indptr : ndarray of shape (n_users + 1,), int64
        Start of each user's items.
    items : ndarray of shape (n_interactions,), int32
        Items, below the number of rows of the item factors.
    values : ndarray of shape (n_interactions,) or None
        Values of the type of `out`; None for values of 1.
    first, last : int
        Users from `first` to ``last - 1``.
    scratch : ndarray of uint8
        Scratch of `als_scratch`, of this thread.
    out : ndarray of shape (n, n_factors)
        Output array of the type of the item factors, with at least ``last - first`` rows, from user `first` on.

    Returns
    -------
    int
        First user with a singular system, or `last`; users with one get zeros.

    Raises
    ------
    ValueError
        `out` has another type than the item factors, or too few rows.
    """
    refuse_python()


@runs_in_compiled_code
def als_close(handle: int) -> None:
    """Free the memory of a handle, which must not be used again.

    Parameters
    ----------
    handle : int
        Handle of `als_open`.
    """
    refuse_python()
