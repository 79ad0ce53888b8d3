"""Readable twin of fastfedrec.core.bit_generator: what NumPy's samplers read from the words of a stream."""


def halves(words):
    """Yield 32-bit draws: the lower half of each word, then the upper one."""
    for word in words:
        yield word & 0xFFFFFFFF
        yield word >> 32


def double(word):
    """Return the 53 highest bits as a fraction in [0, 1), an exact pair (numerator, denominator)."""
    return word >> 11, 2**53
