"""The simulated third party of FedGNN's published variant, which matches users by items under encrypted names."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

_NAMES = "fedgnn.item_names"
_MATCHES = "fedgnn.matches"
_TRIES = 4  # draws for each neighbour


@dataclass(frozen=True)
class Upload:
    """All messages to the third party.

    `names` are the users' items under names that are the same for all users, and reveal no item without the
    recommender's key.  `embeddings` are the users' own.
    """

    indptr: NDArray[np.int64]
    names: NDArray[np.int64]
    embeddings: NDArray[np.float64]


def encrypt_items(data: Interactions, embeddings: np.ndarray, key: Key) -> Upload:
    """Return the users' messages to the third party (Algorithm 2, lines 2 to 4), with new names instead of a cipher.

    A deterministic cipher also gives equal items equal names; the third party does not have the key.
    """
    names = key.permutation(_NAMES, size=data.n_items)
    return Upload(data.indptr, names[data.indices], embeddings)


def find_neighbors(upload: Upload, users: np.ndarray, n_neighbors: int, key: Key) -> NDArray[np.float64]:
    """Return the embeddings that the third party sends each user (line 5): of other users who share an item.

    A user who shares more items is more likely to be drawn.  The result (n_users, n_neighbors, n_factors) is padded
    with zeros.
    """
    n_users, d = upload.embeddings.shape
    embeddings = np.zeros((n_users, n_neighbors, d))
    lengths = np.diff(upload.indptr)
    # Users sorted by item name, so that each name's users are consecutive.
    order = np.argsort(upload.names, kind="stable")
    owners = np.repeat(np.arange(n_users), lengths)[order]
    firsts = np.searchsorted(upload.names[order], np.arange(upload.names.max(initial=-1) + 2))
    tries = _TRIES * n_neighbors
    words = key.words_by_user(_MATCHES, users, size=tries).astype(np.uint64)
    rows = np.flatnonzero(lengths > 0)
    for start in range(0, len(rows), 4096):
        block = rows[start : start + 4096]
        high, low = words[block] >> np.uint64(32), words[block] & np.uint64(2**32 - 1)
        # One of the user's items, then one of the item's users.
        positions = upload.indptr[block, None] + _scaled(high, lengths[block, None])
        names = upload.names[positions]
        candidates = owners[firsts[names] + _scaled(low, firsts[names + 1] - firsts[names])]
        first_seen = np.ones(candidates.shape, dtype=bool)
        # A repeated candidate keeps its first draw only.
        for column in range(1, tries):
            first_seen[:, column] = (candidates[:, :column] != candidates[:, column, None]).all(axis=1)
        fresh = first_seen & (candidates != block[:, None])
        slot = np.cumsum(fresh, axis=1) - 1
        row, column_numbers = np.nonzero(fresh & (slot < n_neighbors))
        embeddings[block[row], slot[row, column_numbers]] = upload.embeddings[candidates[row, column_numbers]]
    return embeddings


def _scaled(words: np.ndarray, sizes: np.ndarray) -> NDArray[np.int64]:
    """Return numbers from 0 to sizes - 1, from 32 random bits each."""
    return (words * sizes.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
