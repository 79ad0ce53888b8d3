"""A loss of the user's own for SGD: a function that the kernels call by its address.  Imports Numba."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import config

_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_double, ctypes.POINTER(ctypes.c_double))


@dataclass(frozen=True)
class CompiledLoss:
    """A loss as the kernels take it, and as Python does."""

    function: Callable[[float, float], tuple[float, float]]
    address: int
    code: Any  # what stands at the address, as long as this object does

    def reraise(self, prediction: float, rating: float) -> None:
        """Raise what the function raised in a kernel, which cannot."""
        self.function(prediction, rating)
        raise RuntimeError(f"loss raised an exception of ({prediction!r}, {rating!r}), though not when called again")


@functools.lru_cache(maxsize=32)  # or each call would compile the function again
def compile_loss(function: Callable[[float, float], tuple[float, float]]) -> CompiledLoss:
    """Compile `function`, unless it is; where Numba is switched off, Python itself is called for each rating."""
    compiled = function if isinstance(function, numba.core.dispatcher.Dispatcher) else numba.njit(function)

    def call(prediction, rating, out):
        results = numba.carray(out, (3,))
        try:
            value, slope = compiled(prediction, rating)
            results[0], results[1], results[2] = value, slope, 0.0
        except Exception:
            results[2] = 1.0  # there is none: the kernel ends

    try:
        result = compiled(0.5, 1.0)
        if isinstance(result, tuple) and len(result) == 2 and all(np.isscalar(x) for x in result):
            if config.DISABLE_JIT:  # type: ignore[attr-defined]
                called = _C_FUNCTION(call)
                return CompiledLoss(compiled, ctypes.cast(called, ctypes.c_void_p).value or 0, called)
            code = numba.cfunc("void(float64, float64, CPointer(float64))")(call)
            return CompiledLoss(compiled, code.address or 0, code)
    except Exception as error:
        raise ValueError(
            f"loss must be a function (prediction, rating) -> (loss, derivative) of two floats that Numba compiles; "
            f"it failed on (0.5, 1.0): {error}"
        ) from error
    raise ValueError(f"loss must return (loss, derivative), got {result!r} of (0.5, 1.0)")
