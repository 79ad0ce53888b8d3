"""Masks of a vector of whole numbers: keystreams that are added modulo 2^32 or 2^64, and cancel in a sum."""

from collections.abc import Sequence

import numpy as np

from fastfedrec._kernels.engines.aggregation import masks as _kernel
from fastfedrec.core.check import check_integer
from fastfedrec.core.threads import resolve_n_threads

__all__ = ["MASK_BYTES", "add_masks"]

#: Number of bytes of the key of a mask.
MASK_BYTES = 32


def add_masks(
    values: np.ndarray, keys: Sequence[bytes], signs: Sequence[int], *, round: int = 0, n_threads: int = 1
) -> None:
    """Add masks to a vector in place, or subtract them, modulo 2 to the number of its bits.

    Parameters
    ----------
    values : ndarray of shape (n,), uint32 or uint64
        Vector, changed in place.
    keys : sequence of bytes
        Keys of the masks, 32 bytes each.  Each must be secret, and be used for one vector of one round.
    signs : sequence of int
        1 to add the mask of a key, -1 to subtract it.
    round : int
        Number of the round, which names the streams together with the keys.
    n_threads : int
        Number of threads, 0 for all; the vector does not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.engines.aggregation.masks import add_masks
    >>> first, second = np.array([1, 2], dtype=np.uint32), np.array([3, 4], dtype=np.uint32)
    >>> add_masks(first, [bytes(32)], [1])
    >>> add_masks(second, [bytes(32)], [-1])
    >>> (first + second).tolist()
    [4, 6]
    """
    if values.ndim != 1 or values.dtype not in (np.uint32, np.uint64) or not values.flags.c_contiguous:
        raise ValueError(
            f"values must be a contiguous vector of uint32 or uint64, got {values.dtype} of shape {values.shape}; "
            "use values.astype(np.uint64)"
        )
    if len(signs) != len(keys) or any(sign not in (-1, 1) for sign in signs):
        raise ValueError(f"signs must be {len(keys)} numbers, each 1 or -1, got {list(signs)[:4]}")
    if any(len(key) != MASK_BYTES for key in keys):
        raise ValueError(f"keys must have {MASK_BYTES} bytes each, got {[len(key) for key in keys][:4]}")
    round_number = check_integer("round", round, low=0, high=2**32 - 1)
    words = np.frombuffer(b"".join(keys), dtype="<u4").astype(np.uint32).reshape(-1, MASK_BYTES // 4)
    _kernel.add_masks(values, words, np.asarray(signs, dtype=np.int8), round_number, resolve_n_threads(n_threads))
