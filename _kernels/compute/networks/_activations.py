"""The logistic function and tanh for Numba kernels, in arithmetic that compilers turn into vectors.

A call of the C library's exp in a loop keeps it scalar, and a recurrent layer has three for each state and step.  Both
functions follow from expm1, which has a small relative error around 0: gradients depend on small differences of states.
"""

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

_DEGREE = {
    np.float32: 7,
    np.float64: 13,
}  # of the Taylor series on |r| <= log(2) / 2, with an error below an ulp
_MANTISSA = {np.float32: 23, np.float64: 52}
_INTEGER = {np.float32: np.int32, np.float64: np.int64}
_BOUND = {np.float32: 87.0, np.float64: 708.0}  # neither e^x nor e^-x overflows or becomes denormal
# log(2) in two parts. The first has few enough bits that its product with a small integer is exact.
_LOG2_HIGH = 0.693359375
_LOG2_LOW = -2.12194440054690583e-4


def expm1(x):
    """Return exp(x) - 1, with x clipped to avoid an overflow; this body runs without a compiler."""
    bound = type(x)(_BOUND[type(x)])
    return np.expm1(bound if x > bound else -bound if x < -bound else x)


def _compile(real):
    integer, mantissa, bound = _INTEGER[real], _MANTISSA[real], real(_BOUND[real])
    zero, one, per_log2, high, low = real(0), real(1), real(1 / math.log(2)), real(_LOG2_HIGH), real(_LOG2_LOW)
    # A small number plus `magic` has the nearest integer in its lowest bits; NaN stays NaN in all branches.
    magic = real(1.5 * 2.0**mantissa)
    bits, bias, shift = integer(magic.view(integer)), integer(127 if real is np.float32 else 1023), integer(mantissa)
    series = tuple(real(1 / math.factorial(k)) for k in range(_DEGREE[real], 0, -1))

    # Reassociation is not allowed: the addition and the subtraction of the magic number would cancel.
    @njit(fastmath={"contract"}, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def compiled(x):
        y = bound if x > bound else -bound if x < -bound else x
        shifted = y * per_log2 + magic
        k = shifted - magic
        r = y - k * high - k * low
        series_sum = zero  # e^r - 1
        for c in series:
            series_sum = (series_sum + c) * r
        power = integer(integer(integer(real(shifted).view(integer)) - bits) + bias)
        scale = real(integer(power << shift).view(real))  # 2^k
        return scale * series_sum + (scale - one)

    return compiled


_COMPILED = {types.float32: _compile(np.float32), types.float64: _compile(np.float64)}


@overload(expm1)
def _compile_expm1(x):
    compiled = _COMPILED[x]
    return lambda x: compiled(x)
