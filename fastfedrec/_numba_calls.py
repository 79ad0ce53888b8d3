"""The code that Numba compiles into callers of the functions of `fastfedrec.numba`, by their names."""

import ctypes
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import llvmlite.binding
import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import get_cython_function_address, overload, register_jitable

from fastfedrec._kernels import capi as _kernel

C = TypeVar("C", bound=Callable[..., Any])

_REALS = (types.float32, types.float64)
_WORDS = (1, types.uint64)  # number of dimensions and type of an array
_WHOLE = (0, types.Integer)  # a number; a float would be truncated, and NaN passes comparisons
_WRITTEN = {"stream", "scratch", "out"}  # arguments that the functions write to
_NO_DRAW = -(2**63)  # of exact draws

#: Code and types of arguments, by the name of a function.
_CALLS: dict[str, tuple[Callable[..., Any], bool, dict[str, Any]]] = {}


def runs_in_compiled_code(function: C) -> C:
    """Register the code that replaces the function in compiled callers; the function stays as it is in Python."""
    code, is_chosen, arguments = _CALLS[function.__name__]
    signature = inspect.signature(function)

    @overload(function, strict=False)
    def compile_call(*args: Any, **kwargs: Any) -> Any:
        kinds = signature.bind(*args, **kwargs).arguments
        for name, wanted in arguments.items():
            _check_type(name, kinds[name], *wanted)
        return code(**kinds) if is_chosen else code

    return function


def _check_type(name: str, kind: Any, ndim: int, *dtypes: Any) -> None:
    """Raise an error unless an argument has a type that its function takes."""
    if ndim == 0:
        if not isinstance(kind, dtypes):
            raise TypingError(f"{name} must be an integer, got {kind}; pass a number of an integer type")
    elif not _is_array(kind, ndim) or kind.dtype not in dtypes:
        wanted = " or ".join(map(str, dtypes))
        raise TypingError(f"{name} must be a C-contiguous array of {wanted} with ndim={ndim}, got {kind}")
    elif name in _WRITTEN and not kind.mutable:
        raise TypingError(
            f"{name} must be a writable array, got {kind}; allocate it in the function or pass it as an argument, "
            "because Numba makes global arrays read-only"
        )


def _is_array(kind: Any, ndim: int) -> bool:
    """Return whether a type is that of C-contiguous arrays of some number of dimensions."""
    return isinstance(kind, types.Array) and (kind.ndim, kind.layout) == (ndim, "C")


def refuse_python() -> NoReturn:
    """Raise the error of a function that was called by the interpreter."""
    raise TypeError("this function runs in functions compiled by numba.njit; call it in one of those")


def _implements(name: str, *, is_chosen: bool = False, **arguments: Any) -> Callable[[C], C]:
    """Register code; if it is chosen, a function from the types of the arguments returns it."""

    def register(code: C) -> C:
        _CALLS[name] = code, is_chosen, arguments
        return code

    return register


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of the C API for compiled code."""
    # The symbol has the API's version: a cached function of another version cannot be loaded.
    symbol = f"ffr_{_kernel.VERSION:x}_{name}"
    llvmlite.binding.add_symbol(symbol, get_cython_function_address(_kernel.__name__, f"ffr_{name}"))
    return types.ExternalFunction(symbol, result(*arguments))


_P, _I, _U, _D = types.uintp, types.int64, types.uint64, types.float64
_INT = types.intc

_stream_bytes = _function("stream_bytes", _P)
_stream_open = _function("stream_open", types.void, _P, _P, types.uint32, _U)
_stream_left = _function("stream_left", _U, _P)
_stream_next = _function("stream_next", _U, _P)
_stream_read = _function("stream_read", _INT, _P, _P, _I)
_stream_uniform = _function("stream_uniform", _D, _P)
_stream_below = _function("stream_below", _U, _P, _U)
_binary_response = _function("binary_response", _INT, _P, _D, _I)
_binary_responses = _function("binary_responses", _INT, _P, _P, _I, _I, _P)
_binary_answers = _function("binary_answers", types.void, _P, _P, _I, _I, _P)
_discrete_laplace = _function("discrete_laplace", _I, _P, _P)
_discrete_gaussian = _function("discrete_gaussian", _I, _P, _P)
_table_noise = _function("table_noise", _I, _P, _P, _P, _P, _I, _INT)
_clip_row = {
    real: _function(f"clip_row_{letter}", _INT, _P, _P, _I, _D, _INT) for real, letter in zip(_REALS, "fd", strict=True)
}
_als_open = {
    real: _function(f"als_open_{letter}", _P, _P, _P, _I, _I, _D, _INT)
    for real, letter in zip(_REALS, "fd", strict=True)
}
_als_solve = {
    real: _function(f"als_solve_{letter}", _I, _P, _P, _P, _P, _I, _I, _P, _P)
    for real, letter in zip(_REALS, "fd", strict=True)
}
_als_scratch_bytes = _function("als_scratch_bytes", _P, _P)
_als_n_factors = _function("als_n_factors", _I, _P)
_als_close = _function("als_close", types.void, _P)


# A constant of compiled code, because a call would take as long as a draw.
_STREAM_WORDS = (
    ctypes.CFUNCTYPE(ctypes.c_size_t)(get_cython_function_address(_kernel.__name__, "ffr_stream_bytes"))() // 8
)


@register_jitable
def _state(stream):
    """Return the address of a stream of the right length."""
    if len(stream) != _STREAM_WORDS:
        raise ValueError("stream must be of make_stream(), got an array of another length")
    return stream.ctypes.data


@register_jitable
def _checked(span):
    """Return the span of binary response as int64."""
    number = np.int64(span)  # negative above 2**63 - 1
    if number < 0:
        raise ValueError("span must be from 0 to 2**63 - 1; pass BinaryResponse.span")
    return number


@register_jitable
def _opened(handle):
    """Return a handle of least squares that is not 0."""
    if handle == 0:
        raise ValueError("handle must be of als_open(), got 0")
    return handle


# Zeros are a stream that has ended, so a draw before it is opened stops the process.
_implements("make_stream")(lambda: np.zeros(_stream_bytes() // 8, np.uint64))
_implements("words_left", stream=_WORDS)(lambda stream: _stream_left(_state(stream)))
_implements("next_word", stream=_WORDS)(lambda stream: _stream_next(_state(stream)))
_implements("uniform", stream=_WORDS)(lambda stream: _stream_uniform(_state(stream)))
_implements("respond", stream=_WORDS, span=_WHOLE)(
    lambda stream, value, span: _binary_response(_state(stream), np.float64(value), _checked(span))
)
_implements("als_scratch", handle=_WHOLE)(lambda handle: np.empty(_als_scratch_bytes(_opened(handle)), np.uint8))
_implements("als_close", handle=_WHOLE)(lambda handle: _als_close(handle))


@_implements("open_stream", stream=_WORDS, subkey=(1, types.uint32), round=_WHOLE, user=_WHOLE)
def _open(stream, subkey, round, user):
    if len(subkey) != 8:
        raise ValueError("subkey must have 8 words; pass subkey(key, purpose)")
    if not 0 <= round < 2**32 or user < 0:
        raise ValueError("round must be from 0 to 2**32 - 1, and user at least 0; pass the numbers of the stream")
    _stream_open(_state(stream), subkey.ctypes.data, np.uint32(round), np.uint64(user))


@_implements("below", stream=_WORDS, bound=_WHOLE)
def _below(stream, bound):
    if bound < 1:
        raise ValueError("bound must be at least 1; pass the number of integers to draw from")
    return _stream_below(_state(stream), np.uint64(bound))


@_implements("read_words", stream=_WORDS, out=_WORDS)
def _read(stream, out):
    if _stream_read(_state(stream), out.ctypes.data, len(out)) != 0:
        raise OverflowError("the stream has fewer words left than out has entries; open another one")


@_implements("respond_values", stream=_WORDS, values=(1, types.float64), span=_WHOLE, out=(1, types.int8))
def _respond_values(stream, values, span, out):
    if len(out) != len(values):
        raise ValueError("out must have the length of values; allocate numpy.empty(len(values), numpy.int8)")
    address = _state(stream)
    if _binary_responses(address, values.ctypes.data, len(values), _checked(span), out.ctypes.data) != 0:
        raise OverflowError("the stream has fewer words left than there are values; open another one")


@_implements("answer_values", values=(1, types.float64), words=_WORDS, span=_WHOLE, out=(1, types.int8))
def _answer_values(values, words, span, out):
    if not len(values) == len(words) == len(out):
        raise ValueError("values, words and out must have the same length; pass a word and an answer for each value")
    _binary_answers(values.ctypes.data, words.ctypes.data, len(values), _checked(span), out.ctypes.data)


@_implements("laplace", stream=_WORDS, numbers=_WORDS)
def _laplace(stream, numbers):
    if len(numbers) != 4:
        raise ValueError("numbers must have 4 entries; pass exact_numbers of a DiscreteLaplace")
    draw = _discrete_laplace(_state(stream), numbers.ctypes.data)
    if draw == _NO_DRAW:
        raise OverflowError("the draw needs integers above 128 bits; use a smaller scale")
    return draw


@_implements("gaussian", stream=_WORDS, numbers=_WORDS)
def _gaussian(stream, numbers):
    if len(numbers) != 10:
        raise ValueError("numbers must have 10 entries; pass exact_numbers of a DiscreteGaussian")
    draw = _discrete_gaussian(_state(stream), numbers.ctypes.data)
    if draw == _NO_DRAW:
        raise OverflowError("the draw needs integers above 128 bits; use a smaller stddev, or one with fewer digits")
    return draw


@_implements("table_noise", is_chosen=True, stream=_WORDS)
def _choose_table(stream, table):
    kinds = table.types if isinstance(table, types.Tuple) else ()
    dtypes = [kind.dtype for kind in kinds if _is_array(kind, 1)]
    if dtypes != [types.uint64, types.uint64, types.int32] or kinds[3:] != (types.int64,):
        raise TypingError(f"table must be the tuple that noise_table(noise) returns, got {table}")

    def draw(stream, table):
        high, low, guide, shift = table
        data = high.ctypes.data, low.ctypes.data, guide.ctypes.data
        return _table_noise(_state(stream), data[0], data[1], data[2], len(high) - 1, np.intc(shift))

    return draw


@_implements("clip_row", is_chosen=True, row=(1, *_REALS), out=(1, *_REALS))
def _choose_clip(row, out, bound, order):
    clip = _clip_row[row.dtype]
    if out.dtype != row.dtype:
        raise TypingError(f"out must be of {row.dtype} as row, got {out.dtype}")

    def run(row, out, bound, order):
        if len(out) != len(row) or not 1e-100 <= bound <= 1e100 or order not in (1, 2):
            raise ValueError("out must be as long as row, bound from 1e-100 to 1e100, and order 1 or 2")
        return clip(row.ctypes.data, out.ctypes.data, len(row), bound, np.intc(order)) != 0

    return run


@_implements("als_open", is_chosen=True, item_factors=(2, *_REALS), gram=(2, types.float64))
def _choose_open(item_factors, gram, confidence_weight, use_values):
    make = _als_open[item_factors.dtype]

    def run(item_factors, gram, confidence_weight, use_values):
        n_items, n_factors = item_factors.shape
        if not 1 <= n_factors <= 256 or gram.shape != (n_factors, n_factors) or not confidence_weight >= 0:
            raise ValueError("item_factors must have 1 to 256 columns, gram their shape, and confidence_weight be >= 0")
        handle = make(
            item_factors.ctypes.data, gram.ctypes.data, n_items, n_factors, np.float64(confidence_weight),
            np.intc(bool(use_values)),
        )  # fmt: skip
        if handle == 0:
            raise MemoryError("no memory for the item factors; use fewer of them")
        return handle

    return run


@_implements(
    "als_solve_users",
    is_chosen=True,
    handle=_WHOLE,
    indptr=(1, types.int64),
    items=(1, types.int32),
    first=_WHOLE,
    last=_WHOLE,
    scratch=(1, types.uint8),
    out=(2, *_REALS),
)
def _choose_solve(handle, indptr, items, values, first, last, scratch, out):
    solve = _als_solve[out.dtype]
    has_values = not isinstance(values, types.NoneType)
    if has_values and not (_is_array(values, 1) and values.dtype == out.dtype):
        raise TypingError(f"values must be None, or a C-contiguous array of {out.dtype} as out, got {values}")

    def run(handle, indptr, items, values, first, last, scratch, out):
        _opened(handle)
        if not 0 <= first <= last < len(indptr) or len(out) < last - first or out.shape[1] != _als_n_factors(handle):
            raise ValueError("first and last must be users of indptr, and out must have a row of all factors for each")
        if len(scratch) < _als_scratch_bytes(handle) or len(items) < indptr[last]:
            raise ValueError("scratch must be of als_scratch(handle), and items must have all entries of indptr")
        address = 0
        if has_values:
            address = values.ctypes.data
            if len(values) < indptr[last]:
                raise ValueError("values must have a value for each item")
        singular = solve(
            handle, indptr.ctypes.data, items.ctypes.data, address, first, last, scratch.ctypes.data, out.ctypes.data
        )
        if singular < 0:
            raise ValueError("out must have the type of the item factors; allocate it with their dtype")
        return singular

    return run
