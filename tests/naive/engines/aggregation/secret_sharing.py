"""Readable twin of fastfedrec.engines.aggregation.secret_sharing: polynomials over two values as Python's integers."""

import hashlib

MODULUS = 2**128 + 2**7 + 2**2 + 2 + 1


def product(a, b):
    """Return the product of two elements of the field."""
    total = 0
    while b:
        total ^= a * (b & 1)
        a, b = a << 1, b >> 1
        if a >> 128:
            a ^= MODULUS
    return total


def inverse(a):
    """Return a^(2^128 - 2)."""
    power = 1
    for _ in range(127):
        a = product(a, a)
        power = product(power, a)
    return power


def split_secret(secret, n_shares, threshold, randomness):
    """Return the values of the polynomial at 1, 2, ..."""
    stream = hashlib.shake_256(randomness).digest(16 * (threshold - 1))
    coefficients = [stream[at : at + 16] for at in range(0, len(stream), 16)] + [secret]
    shares = []
    for point in range(1, n_shares + 1):
        value = 0
        for coefficient in coefficients:
            value = product(value, point) ^ int.from_bytes(coefficient, "big")
        shares.append(value.to_bytes(16, "big"))
    return shares


def combine_shares(shares):
    """Return the value at 0."""
    total = 0
    for point, share in shares:
        weight = 1
        for other, _ in shares:
            if other != point:
                weight = product(weight, product(other, inverse(other ^ point)))
        total ^= product(weight, int.from_bytes(share, "big"))
    return total.to_bytes(16, "big")
