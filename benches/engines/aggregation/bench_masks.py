"""Masks of 60 neighbours on 500,000 numbers, one thread: the floor is the keystream alone.

The peers compute each keystream with the package cryptography, or draw each mask with NumPy's Philox, which is no
cipher, and then add it.
"""

import numpy as np

from benches.ratios import keystream_seconds, peer, with_ratios
from fastfedrec.engines.aggregation.masks import add_masks

N_VALUES, N_MASKS = 500_000, 60
PART = 2**18  # words of 64 bits
KINDS = {32: np.uint32, 64: np.uint64}
KEYS = [bytes([i]) * 32 for i in range(N_MASKS)]
SIGNS = [1 if i % 2 else -1 for i in range(N_MASKS)]


def _fastfedrec(values):
    add_masks(values, KEYS, SIGNS)


def _cryptography(values):
    with peer("cryptography"):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    zeros = bytes(values.nbytes)
    for key, sign in zip(KEYS, SIGNS, strict=True):
        # The nonce has the counter in its first four bytes.
        stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(zeros)
        words = np.frombuffer(stream, dtype=values.dtype)
        (np.add if sign > 0 else np.subtract)(values, words, out=values)


def _numpy_philox(values):
    for key, sign in zip(KEYS, SIGNS, strict=True):
        words = np.random.Philox(key[0]).random_raw(values.nbytes // 8).view(values.dtype)
        (np.add if sign > 0 else np.subtract)(values, words, out=values)


def _floor(case):
    """Return the seconds of the keystream's words, in parts that stay in the cache: the kernel writes no mask."""
    return N_MASKS * case.values.nbytes / (8 * PART) * keystream_seconds(PART)


IMPLEMENTATIONS = {"fastfedrec": _fastfedrec, "cryptography": _cryptography, "numpy_philox": _numpy_philox}


@with_ratios("time_add_masks", floor=_floor)
class Masks:
    param_names = ("impl", "n_bits")
    params = (list(IMPLEMENTATIONS), list(KINDS))

    def setup(self, impl, n_bits):
        self.values = np.zeros(N_VALUES, dtype=KINDS[n_bits])
        if impl == "cryptography":
            expected, got = np.zeros((2, N_VALUES), dtype=KINDS[n_bits])
            _fastfedrec(expected)
            _cryptography(got)
            if (expected != got).any():
                raise AssertionError("masks differ")

    def time_add_masks(self, impl, n_bits):
        IMPLEMENTATIONS[impl](self.values)
