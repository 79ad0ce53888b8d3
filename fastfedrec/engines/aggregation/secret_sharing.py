"""Shamir's shares of a secret of 16 bytes, equal to those of the package pycryptodome."""

import hashlib
from collections.abc import Sequence

import numpy as np

from fastfedrec._kernels.engines.aggregation import secret_sharing as _kernel
from fastfedrec.core.check import check_integer

__all__ = ["SEALED_BYTES", "SEED_BYTES", "combine_shares", "split_secret"]

#: Number of bytes of a secret and of a share.
SEED_BYTES = 16
#: Number of bytes of sealed shares of two secrets, with their tag.
SEALED_BYTES = 2 * SEED_BYTES + 16
_MAX_SHARES = 2**10 - 1


def split_secret(secret: bytes, n_shares: int, threshold: int, *, randomness: bytes) -> list[bytes]:
    """Return shares of a secret, in the order of their numbers 1, 2, ...

    Parameters
    ----------
    secret : bytes
        16 bytes.
    n_shares : int
        Number of shares, below 2^10.
    threshold : int
        Number of shares that recover the secret; fewer are independent of it.
    randomness : bytes
        32 secret bytes, from which the polynomial is expanded by SHAKE-256.  They must be used for one secret.

    Returns
    -------
    list of bytes
        Shares of 16 bytes.

    Examples
    --------
    >>> from fastfedrec.engines.aggregation.secret_sharing import combine_shares, split_secret
    >>> first, second, third = split_secret(b"sixteen bytes ..", 3, 2, randomness=bytes(32))
    >>> combine_shares([(1, first), (3, third)])
    b'sixteen bytes ..'
    """
    n_shares = check_integer("n_shares", n_shares, low=1, high=_MAX_SHARES)
    threshold = check_integer("threshold", threshold, low=1, high=n_shares)
    _check_bytes("secret", secret, SEED_BYTES)
    _check_bytes("randomness", randomness, 32)
    coefficients = hashlib.shake_256(randomness).digest(SEED_BYTES * (threshold - 1)) + secret
    shares = np.empty((n_shares, 2), dtype=np.uint64)
    _kernel.evaluate(_as_words(coefficients), shares)
    encoded = shares.astype(">u8").tobytes()
    return [encoded[at : at + SEED_BYTES] for at in range(0, len(encoded), SEED_BYTES)]


def combine_shares(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the secret of shares.

    Parameters
    ----------
    shares : sequence of (int, bytes)
        Shares with their numbers, as many as the threshold or more.

    Returns
    -------
    bytes
        The secret; with fewer shares than the threshold, bytes that are independent of it.
    """
    numbers = [check_integer("shares", number, low=1, high=_MAX_SHARES) for number, _ in shares]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"shares must have distinct numbers, got {numbers[:8]}; pass each share once")
    for _, share in shares:
        _check_bytes("shares", share, SEED_BYTES)
    secret = np.empty(2, dtype=np.uint64)
    _kernel.interpolate(_as_words(b"".join(share for _, share in shares)), np.array(numbers, dtype=np.int64), secret)
    return secret.astype(">u8").tobytes()


def _as_words(values: bytes) -> np.ndarray:
    """Return each value as its high and its low half."""
    return np.frombuffer(values, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def _check_bytes(name: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise ValueError(f"{name} must have {size} bytes, got {len(value)}")
