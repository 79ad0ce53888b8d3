"""Whom a user of DMF sends its gradients to: a public graph, and random walks on it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.core.check import check_array
from fastfedrec.core.randomness import Key

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_NEIGHBORS = "dmf.neighbors"


def draw_graph(users: np.ndarray, n_neighbors: int, key: Key) -> "csr_array":
    """A graph that knows nothing of anybody: each user draws its neighbours from a stream of its own.

    Parameters
    ----------
    users : ndarray of shape (n_users,), uint64
        Global ids.
    n_neighbors : int
        How many each draws, uniformly of the others, with replacement.
    key : Key
        Source of the draws.

    Returns
    -------
    csr_array of shape (n_users, n_users), float64
        How often user u drew user v.
    """
    import scipy.sparse

    n = len(users)
    if n < 2:
        return scipy.sparse.csr_array((n, n), dtype=np.float64)
    # The high half of a product with a word of 32 bits: uniform but for n * 2^-32.
    words = key.words_by_user(_NEIGHBORS, users, size=n_neighbors) >> np.uint64(32)
    others = (words * np.uint64(n - 1) >> np.uint64(32)).astype(np.int64)
    others += others >= np.arange(n)[:, None]
    rows = np.repeat(np.arange(n), n_neighbors)
    return scipy.sparse.csr_array((np.ones(others.size), (rows, others.ravel())), shape=(n, n))


def check_graph(graph: Any, n_users: int) -> "csr_array":
    """Return the weights of edges between users, or raise.

    Parameters
    ----------
    graph : sparse array or matrix, or array_like, of shape (n_users, n_users)
        Public weights, of at least 0; that of a user to itself is ignored.
    n_users : int
        How many there are.

    Returns
    -------
    csr_array of shape (n_users, n_users), float64
        Without a diagonal; a weight of 0 is no edge.

    Raises
    ------
    ValueError
        Of another shape, or with a weight that is negative or not finite.
    """
    import scipy.sparse

    if not scipy.sparse.issparse(graph):
        graph = check_array("graph", graph, ndim=2)
    found = scipy.sparse.coo_array(graph, dtype=np.float64)
    if found.shape != (n_users, n_users):
        raise ValueError(f"graph must have shape ({n_users}, {n_users}), a row and a column a user, got {found.shape}")
    if not (np.isfinite(found.data) & (found.data >= 0)).all():
        raise ValueError("graph must have finite weights of at least 0; leave out those who do not meet")
    linked = (found.row != found.col) & (found.data > 0)
    return scipy.sparse.csr_array((found.data[linked], (found.row[linked], found.col[linked])), shape=found.shape)


def walk_weights(graph: "csr_array", walk_length: int) -> "csr_array":
    """With which weight each user's gradients count for whom its walks reach.

    Parameters
    ----------
    graph : csr_array of shape (n_users, n_users), float64
        Weights of edges, of at least 0.
    walk_length : int
        Most steps of a walk.

    Returns
    -------
    csr_array of shape (n_users, n_users), float64
        Row u: over all lengths d, the chance that a walk from u is there after d steps, times how many it may then
        have reached; nothing for u itself.
    """
    import scipy.sparse

    totals = graph.sum(axis=1)
    scale = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
    step = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ graph)
    step.eliminate_zeros()
    chances, total = step, scipy.sparse.csr_array(graph.shape, dtype=np.float64)
    for length in range(walk_length):
        if length:
            chances = scipy.sparse.csr_array(chances @ step)
        others = scipy.sparse.csr_array(chances - scipy.sparse.diags_array(chances.diagonal()))
        others.eliminate_zeros()
        total = total + scipy.sparse.diags_array(np.diff(others.indptr).astype(np.float64)) @ others
    total = scipy.sparse.csr_array(total)
    total.sort_indices()
    return total
