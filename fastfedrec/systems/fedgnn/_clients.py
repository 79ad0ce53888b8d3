"""The computations of FedGNN's clients: predicted items, gradients, and the rows of pseudo items."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.fedgnn import model as _kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions

JOINED, HIDDEN, OTHER = 0, 1, 2  # the kernel's codes

_PARTS = "fedgnn.parts"
_NEGATIVES = "fedgnn.negatives"
_PSEUDO = "fedgnn.pseudo_items"
_PSEUDO_ROWS = "fedgnn.pseudo_rows"
_SERVING_KEY = Key.from_seed(0)


class Parameters(NamedTuple):
    """The parameters that the server sends: W, attention of attending and attended nodes, and item embeddings."""

    weights: NDArray[np.float64]
    attention: NDArray[np.float64]
    embeddings: NDArray[np.float64]

    @classmethod
    def of(cls, vector: np.ndarray, n_factors: int) -> "Parameters":
        """Return views of the parts of a vector that `flat` made."""
        d = n_factors
        weights, attention, embeddings = np.split(vector, [d * d, d * d + 2 * d])
        return cls(weights.reshape(d, d), attention.reshape(2, d), embeddings.reshape(-1, d))

    def flat(self) -> NDArray[np.float64]:
        """Return one vector, with the items' embeddings last."""
        return np.concatenate([part.ravel() for part in self])

    def projected(self) -> NDArray[np.float64]:
        """Return the items' embeddings, multiplied by W."""
        with one_blas_thread():
            return np.ascontiguousarray(self.embeddings @ self.weights.T)


@dataclass(frozen=True)
class Entries:
    """The items that some clients train on, in ascending order for each client.

    `targets` are values minus the middle of the grid, and `kinds` are JOINED, HIDDEN or OTHER.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    targets: NDArray[np.float64]
    kinds: NDArray[np.uint8]

    def counts(self) -> NDArray[np.int64]:
        """Return the number of entries of each client."""
        return np.diff(self.indptr)


def draw_entries(
    shard: Interactions, grid: tuple[float, float], negatives: int, key: Key | None, round_number: int = 0
) -> Entries:
    """Return each user's items, in two random parts, and `negatives` others for each, without duplicates.

    Each user's draws come from the user's stream, and do not depend on other users' data.  Without a key they are
    public, and the same for equal rows, for devices that serve their user.
    """
    users = shard.global_user_ids
    if key is None:
        key, users = _SERVING_KEY, np.zeros(shard.n_users, dtype=np.uint64)
    lengths = shard.interactions_per_user()
    middle = sum(grid) / 2
    # One random bit per item: joined items form the graph, and hidden ones are predicted from it.
    parts, _ = key.ragged_words(_PARTS, users, lengths, round=round_number)
    targets = np.clip(shard.values_or_ones(np.float64), *grid) - middle
    rows, n_items = np.repeat(np.arange(shard.n_users), lengths), shard.n_items
    codes = rows * np.int64(n_items) + shard.indices
    kinds = np.where(parts >> np.uint64(63), HIDDEN, JOINED).astype(np.uint8)
    if negatives:
        words, _ = key.ragged_words(_NEGATIVES, users, negatives * lengths, round=round_number)
        # The high half of a product with 32 random bits is uniform up to n_items / 2^32.
        drawn = ((words >> np.uint64(32)) * np.uint64(n_items) >> np.uint64(32)).astype(np.int64)
        negative_codes = np.setdiff1d(np.repeat(np.arange(shard.n_users), negatives * lengths) * n_items + drawn, codes)
        codes = np.concatenate([codes, negative_codes])
        targets = np.concatenate([targets, np.full(len(negative_codes), grid[0] - middle)])
        kinds = np.concatenate([kinds, np.full(len(negative_codes), OTHER, dtype=np.uint8)])
    # Sorted by user and then by item.
    order = np.argsort(codes, kind="stable")
    rows, items = np.divmod(codes[order], n_items)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shard.n_users))])
    return Entries(indptr, items.astype(np.int32), targets[order], kinds[order])


@dataclass(frozen=True)
class Gradients:
    """The results of some clients, who keep their embeddings `users`.

    `shared` are gradients of W and of the attention, `rows` are gradients of the entries' item embeddings, and
    `moments` are sums of products of a client's rows, or empty.
    """

    users: NDArray[np.float64]
    shared: NDArray[np.float64]
    rows: NDArray[np.float64]
    moments: NDArray[np.float64]


def find_gradients(
    parameters: Parameters, projected: np.ndarray, entries: Entries, neighbors: np.ndarray, rate: float, n_steps: int,
    n_threads: int, *, with_moments: bool,
) -> Gradients:  # fmt: skip
    """Run the kernel on some clients."""
    n, d = len(entries.indptr) - 1, len(parameters.weights)
    gradients = Gradients(
        np.empty((n, d)), np.empty((n, d * d + 2 * d)), np.empty((len(entries.items), d)),
        np.empty((n, d, d) if with_moments else (0, 0, 0)),
    )  # fmt: skip
    failed = np.zeros(n, dtype=np.int64)
    _kernel.client_gradients(
        entries.indptr, entries.items, entries.targets, entries.kinds, neighbors, parameters.embeddings, projected,
        parameters.weights, parameters.attention, gradients.users, gradients.shared, gradients.rows, gradients.moments,
        failed, rate, n_steps, n_threads,
    )  # fmt: skip
    if failed.any():
        raise MemoryError("no memory for a client's graph; use fewer threads or factors")
    return gradients


def find_states(
    parameters: Parameters, entries: Entries, neighbors: np.ndarray, rate: float, n_steps: int, n_threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each user's embedding, and the user's hidden state when joined with all of the user's items."""
    n, d = len(entries.indptr) - 1, len(parameters.weights)
    users, hidden, failed = np.empty((n, d)), np.empty((n, d)), np.zeros(n, dtype=np.int64)
    _kernel.client_states(
        entries.indptr, entries.items, entries.targets, entries.kinds, neighbors, parameters.embeddings,
        parameters.projected(), parameters.weights, parameters.attention, users, hidden, failed, rate, n_steps,
        n_threads,
    )  # fmt: skip
    if failed.any():
        raise MemoryError("no memory for a client's graph; use fewer threads or factors")
    return users, hidden


def draw_pseudo_items(
    entries: Entries, users: np.ndarray, n_items: int, n_pseudo: int, key: Key, round_number: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return numbers of uniformly drawn items without an entry, and these items, for each client."""
    counts = entries.counts()
    n_drawn = np.minimum(n_pseudo, n_items - counts)
    words = key.words_by_user(_PSEUDO, users, round=round_number, size=n_items)
    # The items with the smallest words; items with an entry come last.
    words >>= np.uint64(1)
    words[np.repeat(np.arange(len(users)), counts), entries.items] = np.uint64(2**64 - 1)
    order = np.argsort(words, axis=1)[:, : n_drawn.max(initial=0)]
    return n_drawn, order[np.arange(order.shape[1]) < n_drawn[:, None]]


def draw_pseudo_rows(
    gradients: Gradients, entries: Entries, users: np.ndarray, n_drawn: np.ndarray, key: Key, round_number: int
) -> NDArray[np.float64]:
    """Return normal rows with mean and covariance of a client's own rows (section 3.3); zeros without entries."""
    from scipy.special import ndtri

    counts, d = entries.counts(), gradients.rows.shape[1]
    divisors = np.maximum(counts, 1)[:, None]
    sums = np.add.reduceat(np.vstack([gradients.rows, np.zeros((1, d))]), entries.indptr[:-1], axis=0)
    means = np.where(counts[:, None] > 0, sums, 0.0) / divisors
    # The covariance is E[x x'] less the product of the means.
    covariances = gradients.moments / divisors[:, :, None] - means[:, :, None] * means[:, None, :]
    words, starts = key.ragged_words(_PSEUDO_ROWS, users, n_drawn * d, round=round_number)
    normal = ndtri(as_uniform(words)).reshape(-1, d)
    with one_blas_thread(), np.errstate(invalid="ignore"):
        # A client with gradients that are not finite sends zeros, and the decomposition of the others succeeds.
        values, vectors = np.linalg.eigh(np.nan_to_num(covariances, posinf=0.0, neginf=0.0))
        # The symmetric root does not depend on the choice of eigenvectors.
        roots = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1)
        blocks = [
            normal[first // d : last // d] @ root for first, last, root in zip(starts, starts[1:], roots, strict=False)
        ]
    return np.concatenate(blocks) + np.repeat(means, n_drawn, axis=0)
