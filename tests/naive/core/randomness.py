"""Readable twin of fastfedrec.core.randomness: ChaCha20 of RFC 8439, section 2, on Python integers."""

import hashlib

MASK = 0xFFFFFFFF


def quarter_round(x, a, b, c, d):
    for first, second, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[first] = (x[first] + x[second]) & MASK
        x[third] ^= x[first]
        x[third] = ((x[third] << bits) | (x[third] >> (32 - bits))) & MASK


def block(key_words, counter, nonce_words):
    """Return one block of 16 words."""
    # The four constants are "expand 32-byte k" in ASCII, RFC 8439, section 2.3.
    state = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key_words, counter, *nonce_words]
    x = list(state)
    for _ in range(10):
        for quarter in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            quarter_round(x, *quarter)
        for quarter in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter_round(x, *quarter)
    return [(after + before) & MASK for after, before in zip(x, state, strict=True)]


def subkey(secret, purpose):
    digest = hashlib.blake2b(purpose.encode(), key=secret, person=b"fastfedrec-1", digest_size=32).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]


def words(secret, purpose, round_number, user, size):
    """Return words of the stream (purpose, round, user); nonce (round, user low, user high), counter from 0."""
    key, out, counter = subkey(secret, purpose), [], 0
    while len(out) < size:
        w = block(key, counter, [round_number, user & MASK, user >> 32])
        out += [w[i] | w[i + 1] << 32 for i in range(0, 16, 2)]
        counter += 1
    return out[:size]


def uniform(word):
    """Return the middle of the word's cell among 2**52 in (0, 1), as an exact pair (numerator, denominator)."""
    return 2 * (word >> 12) + 1, 2**53


def permutation(stream):
    return sorted(range(len(stream)), key=stream.__getitem__)
