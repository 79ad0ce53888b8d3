"""Readable twin of fastfedrec.engines.aggregation.masks: words of RFC 8439's blocks, added as Python's integers."""

from naive.core.randomness import block


def words(key, round_number, n_bits, n):
    """Return the first n words of a mask."""
    key_words = [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
    stream = b""
    counter = 0
    while 8 * len(stream) < n * n_bits:
        stream += b"".join(w.to_bytes(4, "little") for w in block(key_words, counter, [round_number, 0, 0]))
        counter += 1
    size = n_bits // 8
    return [int.from_bytes(stream[i : i + size], "little") for i in range(0, n * size, size)]


def add_masks(values, keys, signs, round_number, n_bits):
    """Return the masked values."""
    masks = [words(key, round_number, n_bits, len(values)) for key in keys]
    return [
        (value + sum(sign * mask[i] for sign, mask in zip(signs, masks, strict=True))) % 2**n_bits
        for i, value in enumerate(values)
    ]
