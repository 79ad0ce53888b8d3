"""The receivers of a DMF user's gradients: a public graph, and random walks on it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.core.check import check_array
from fastfedrec.core.randomness import Key

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_NEIGHBORS = "dmf.neighbors"


def draw_graph(users: np.ndarray, n_neighbors: int, key: Key) -> "csr_array":
    """Return counts of each user's random neighbours, drawn uniformly with replacement and independently of data."""
    import scipy.sparse

    n = len(users)
    if n < 2:
        return scipy.sparse.csr_array((n, n), dtype=np.float64)
    # The high half of a product with a word of 32 bits: uniform but for n * 2^-32.
    words = key.words_by_user(_NEIGHBORS, users, size=n_neighbors) >> np.uint64(32)
    neighbors = (words * np.uint64(n - 1) >> np.uint64(32)).astype(np.int64)
    # Numbers from the user's own on are raised by 1, which leaves the user out.
    neighbors += neighbors >= np.arange(n)[:, None]
    rows = np.repeat(np.arange(n), n_neighbors)
    return scipy.sparse.csr_array((np.ones(neighbors.size), (rows, neighbors.ravel())), shape=(n, n))


def check_graph(graph: Any, n_users: int) -> "csr_array":
    """Return the public weights of edges between users without the diagonal, or raise `ValueError`."""
    import scipy.sparse

    if not scipy.sparse.issparse(graph):
        graph = check_array("graph", graph, ndim=2)
    weights = scipy.sparse.coo_array(graph, dtype=np.float64)
    if weights.shape != (n_users, n_users):
        raise ValueError(f"graph must have shape ({n_users}, {n_users}), got {weights.shape}")
    if not (np.isfinite(weights.data) & (weights.data >= 0)).all():
        raise ValueError("graph must have finite weights of at least 0; leave out pairs without an edge")
    linked = (weights.row != weights.col) & (weights.data > 0)
    edges = weights.row[linked], weights.col[linked]
    return scipy.sparse.csr_array((weights.data[linked], edges), shape=weights.shape)


def walk_weights(graph: "csr_array", walk_length: int) -> "csr_array":
    """Return the weight of each user's gradients for the users that random walks of up to `walk_length` steps reach.

    Row u sums over all lengths d the probability that a walk from u is at a user after d steps, times the number of
    users that it can reach in d steps.  The diagonal is empty.
    """
    import scipy.sparse

    totals = graph.sum(axis=1)
    # Each row is divided by its sum, so that it has the probabilities of one step.
    scale = np.divide(1.0, totals, out=np.zeros(len(totals)), where=totals > 0)
    step = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ graph)
    step.eliminate_zeros()
    chances, total = step, scipy.sparse.csr_array(graph.shape, dtype=np.float64)
    for length in range(walk_length):
        if length:
            chances = scipy.sparse.csr_array(chances @ step)
        reached = scipy.sparse.csr_array(chances - scipy.sparse.diags_array(chances.diagonal()))
        reached.eliminate_zeros()
        total = total + scipy.sparse.diags_array(np.diff(reached.indptr).astype(np.float64)) @ reached
    total = scipy.sparse.csr_array(total)
    total.sort_indices()
    return total
