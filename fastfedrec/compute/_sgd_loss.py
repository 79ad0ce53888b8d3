"""Custom losses for SGD: Numba compiles a function, and the kernels call it by its address."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import config

# Signature of a loss in the kernels: prediction, rating, and an output of (loss, derivative, error flag).
_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_double, ctypes.POINTER(ctypes.c_double))


@dataclass(frozen=True)
class CompiledLoss:
    """A loss as a Python function and as machine code for the kernels."""

    function: Callable[[float, float], tuple[float, float]]
    address: int
    code: Any  # owner of the machine code at `address`; a reference keeps the code alive

    def reraise(self, prediction: float, rating: float) -> None:
        """Call the function again, to raise the error that the kernel could not raise."""
        self.function(prediction, rating)
        raise RuntimeError(
            f"loss must be a pure function, got an exception of ({prediction!r}, {rating!r}) in only one of two calls; "
            "remove its state"
        )


@functools.lru_cache(maxsize=32)  # without the cache each fit would compile the function again
def compile_loss(function: Callable[[float, float], tuple[float, float]]) -> CompiledLoss:
    """Compile `function` unless it is compiled; with NUMBA_DISABLE_JIT the kernels call Python for each rating."""
    compiled = function if isinstance(function, numba.core.dispatcher.Dispatcher) else numba.njit(function)

    def call(prediction, rating, out):
        results = numba.carray(out, (3,))
        try:
            value, slope = compiled(prediction, rating)
            results[0], results[1], results[2] = value, slope, 0.0
        except Exception:
            results[2] = 1.0  # an error flag, at which the kernel stops

    # A trial call compiles the function, so that errors appear before training starts.
    try:
        result = compiled(0.5, 1.0)
        if isinstance(result, tuple) and len(result) == 2 and all(np.isscalar(x) for x in result):
            # Numba cannot make a C function with its compiler off, so ctypes wraps the Python function.
            if config.DISABLE_JIT:  # type: ignore[attr-defined]
                callback = _C_FUNCTION(call)
                return CompiledLoss(compiled, ctypes.cast(callback, ctypes.c_void_p).value or 0, callback)
            code = numba.cfunc("void(float64, float64, CPointer(float64))")(call)
            return CompiledLoss(compiled, code.address or 0, code)
    except Exception as error:
        raise ValueError(
            f"loss must be a function (prediction, rating) -> (loss, derivative) of two floats that Numba compiles; "
            f"it failed on (0.5, 1.0): {error}"
        ) from error
    raise ValueError(f"loss must return (loss, derivative), got {result!r} for (0.5, 1.0); return two floats")
