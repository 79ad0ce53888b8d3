"""The third party of FedGNN's published variant, simulated: it matches users by items whose names it cannot read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

_NAMES = "fedgnn.item_names"
_MATCHES = "fedgnn.matches"
_TRIES = 4  # draws for each place of a neighbour


@dataclass(frozen=True)
class Upload:
    """All that the third party receives, of everybody.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's items begin.
    names : ndarray of shape (n_interactions,), int64
        The items under names that are the same for everybody, and tell nothing without the recommender's key.
    embeddings : ndarray of shape (n_users, n_factors), float64
        Each user's own.
    """

    indptr: NDArray[np.int64]
    names: NDArray[np.int64]
    embeddings: NDArray[np.float64]


def encrypt_items(data: Interactions, embeddings: np.ndarray, key: Key) -> Upload:
    """What users send the third party (Algorithm 2, lines 2 to 4), by a renaming in place of a cipher.

    Parameters
    ----------
    data : Interactions
        Of all users.
    embeddings : ndarray of shape (n_users, n_factors), float64
        Each user's own.
    key : Key
        Draws the new names; the third party does not have it.

    Returns
    -------
    Upload
        A deterministic cipher's image of each list of items: equal items have equal names.
    """
    names = key.permutation(_NAMES, size=data.n_items)
    return Upload(data.indptr, names[data.indices], embeddings)


def find_neighbors(upload: Upload, users: np.ndarray, n_neighbors: int, key: Key) -> NDArray[np.float64]:
    """The embeddings that the third party sends each user (line 5): of others who share an item with it.

    Parameters
    ----------
    upload : Upload
        Of all users.
    users : ndarray of shape (n_users,), uint64
        Names the draws of each.
    n_neighbors : int
        Places for each user; whoever shares more items has the better chance of one.
    key : Key
        The third party's.

    Returns
    -------
    ndarray of shape (n_users, n_neighbors, n_factors), float64
        Without names; an empty place is all zeros.
    """
    n_users, d = upload.embeddings.shape
    found = np.zeros((n_users, n_neighbors, d))
    lengths = np.diff(upload.indptr)
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
        places = upload.indptr[block, None] + _scaled(high, lengths[block, None])
        names = upload.names[places]
        others = owners[firsts[names] + _scaled(low, firsts[names + 1] - firsts[names])]
        first_seen = np.ones(others.shape, dtype=bool)
        for column in range(1, tries):
            first_seen[:, column] = (others[:, :column] != others[:, column, None]).all(axis=1)
        fresh = first_seen & (others != block[:, None])
        place = np.cumsum(fresh, axis=1) - 1
        row, tried = np.nonzero(fresh & (place < n_neighbors))
        found[block[row], place[row, tried]] = upload.embeddings[others[row, tried]]
    return found


def _scaled(words: np.ndarray, sizes: np.ndarray) -> NDArray[np.int64]:
    """Numbers from 0 to sizes - 1, by 32 random bits."""
    return (words * sizes.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
