"""Shamir's shares of a secret of 128 bits (docs/explanation/aggregation.md).  Inputs are trusted.

A secret is an element of the field of 2^128 polynomials modulo x^128 + x^7 + x^2 + x + 1 over two values, with its high
half first.  Time and addresses depend on the public points alone, and on no secret.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef struct Element:
    uint64_t high, low

cdef enum:
    ALL_BITS = 128
    POINT_BITS = 10           # points are below 2^10


def evaluate(
    const uint64_t[:, ::1] coefficients,    # IN   (degree + 1, 2), the secret last
    uint64_t[:, ::1] shares,                # OUT  (n_shares, 2), at the points 1, 2, ...
):
    """Evaluate a polynomial by Horner's scheme, with n_shares below 2^10."""
    cdef Py_ssize_t i, k
    cdef Element share
    with nogil:
        for i in range(shares.shape[0]):
            share.high = share.low = 0
            for k in range(coefficients.shape[0]):
                share = _product(share, _point(i + 1), POINT_BITS)
                share.high ^= coefficients[k, 0]
                share.low ^= coefficients[k, 1]
            shares[i, 0], shares[i, 1] = share.high, share.low


def interpolate(
    const uint64_t[:, ::1] shares,    # IN   (n, 2)
    const int64_t[::1] points,        # IN   (n,), distinct, from 1 to 2^10 - 1
    uint64_t[::1] secret,             # OUT  (2,)
):
    """Add up secret = sum_i share_i prod_{j != i} x_j / (x_j - x_i), Lagrange's polynomial at 0."""
    cdef Py_ssize_t n = points.shape[0], i, j
    cdef Element* denominators = <Element*>malloc((2 * n + 1) * sizeof(Element))
    cdef Element* products = denominators + n    # products[i] is that of the first i denominators
    cdef Element everything = _point(1), inverse, weight, share, total
    if denominators == NULL:
        raise MemoryError
    with nogil:
        total.high = total.low = 0
        products[0] = _point(1)
        for i in range(n):
            everything = _product(everything, _point(points[i]), POINT_BITS)
            # The point itself completes the product of all points in the numerator.
            denominators[i] = _point(points[i])
            for j in range(n):
                if j != i:
                    denominators[i] = _product(denominators[i], _point(points[i] ^ points[j]), POINT_BITS)
            products[i + 1] = _product(products[i], denominators[i], ALL_BITS)
        # One inverse of all denominators gives the inverse of each.
        inverse = _inverse(products[n])
        for i in range(n - 1, -1, -1):
            weight = _product(_product(inverse, products[i], ALL_BITS), everything, ALL_BITS)
            inverse = _product(inverse, denominators[i], ALL_BITS)
            share.high, share.low = shares[i, 0], shares[i, 1]
            share = _product(share, weight, ALL_BITS)
            total.high ^= share.high
            total.low ^= share.low
        secret[0], secret[1] = total.high, total.low
        free(denominators)


cdef inline Element _point(int64_t x) noexcept nogil:
    cdef Element point
    point.high, point.low = 0, <uint64_t>x
    return point


cdef inline Element _product(Element a, Element b, int n_bits) noexcept nogil:
    """Multiply two elements, the second with n_bits binary digits."""
    cdef Element product
    cdef uint64_t carry, chosen
    cdef int i
    product.high = product.low = 0
    for i in range(n_bits - 1, -1, -1):
        # Times x, where x^128 is x^7 + x^2 + x + 1.
        carry = 0 - (product.high >> 63)
        product.high = product.high << 1 | product.low >> 63
        product.low = product.low << 1 ^ (carry & 0x87)
        chosen = 0 - ((b.high >> (i - 64) if i >= 64 else b.low >> i) & 1)
        product.high ^= a.high & chosen
        product.low ^= a.low & chosen
    return product


cdef inline Element _inverse(Element a) noexcept nogil:
    """Raise an element to the power 2^128 - 2."""
    cdef Element power = a, inverse = _point(1)
    cdef int _
    for _ in range(ALL_BITS - 1):
        power = _product(power, power, ALL_BITS)
        inverse = _product(inverse, power, ALL_BITS)
    return inverse
