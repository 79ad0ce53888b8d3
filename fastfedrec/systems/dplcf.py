"""DPLCF: item neighbours from randomized interaction bits, and recommendations on the device (Gao et al. 2020)."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms.channels import binary_response as _kernel
from fastfedrec.accounting import LocalReports
from fastfedrec.compute import ranking
from fastfedrec.compute.pair_sums import sum_products
from fastfedrec.core.exact_sums import check_summands
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems._neighbors import NeighborScores
from fastfedrec.systems.baselines.popularity import Baseline
from fastfedrec.systems.claims import FEWER_ITEMS

__all__ = ["DPLCF"]

_BITS = "dplcf.bits"
_BLOCK_CELLS = 2**23  # answers in memory at a time
_MAX_USERS = 2**31 - 1  # the product of two answers is -1 or 1, and their sums are int32
_CACHED_CELLS = 2**17  # similarities of a block of rows, which fit into a cache


@declares_parameters
class DPLCF(Baseline):
    """Item-based nearest neighbours under local differential privacy.

    **Guarantee.** All messages of a user are ``n_items * epsilon``-differentially private in the local model, for
    replacing all of that user's data ("replace", privacy unit "user"); the user trusts only the user's own device.
    `epsilon` itself holds for one interaction bit only.  `ledger_` has the epsilon of the fit.

    Attributes
    ----------
    neighbor_items_ : ndarray of shape (n_items, n_neighbors), int32
        Columns of the most similar other items, best first; ties go to the earlier item.
    neighbor_similarities_ : ndarray of shape (n_items, n_neighbors), float64
        Similarities, in falling order, at least 0.
    item_counts_ : ndarray of shape (n_items,), float64
        Unbiased estimates, from the same answers, of the number of users with each item; they rank the items for a
        user without items.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Notes
    -----
    Each user reports every interaction bit (1 for an item that the user has) by binary response.  The server debiases
    the counts of items and of pairs (`estimate_cooccurrences`) and computes the cosine of each pair.  A count below its
    own standard deviation is raised to it, since the noise of a rare item would look like similarity.  A user's device
    scores item i with the sum of its similarities to the user's items that are among its neighbours.

    References
    ----------
    .. [1] Gao, Huang, Lin, Jin, Li, "DPLCF: differentially private local collaborative filtering", SIGIR 2020.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.dplcf import DPLCF
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20])
    >>> model = DPLCF(epsilon=2.5).fit(data, key=Key.from_seed(1))
    >>> model.score([2, 3], [30, 10]).shape
    (2,)
    >>> model.ledger_.epsilon()
    7.5
    """

    _serves = NeighborScores
    _not_in_0_1_0 = ("item_counts_",)
    _is_private: ClassVar[bool] = True

    epsilon: float = real(2.5, above=0.0).doc("Epsilon per interaction bit, in nats, above 0.")
    n_neighbors: int = integer(50, low=1).doc("Number of neighbours stored for each item.")

    _needs_less = FEWER_ITEMS

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n_items = sizes.n_items
        n_rows = min(sizes.n_users, max(1, _BLOCK_CELLS // n_items))
        answers = {
            "answers": Array.of("int8", n_rows, n_items),
            "answers as numbers": Array.of("float32", n_rows, n_items),
        }
        pairs = {"sums": Array.of("float32", n_items, n_items), "pairs": Array.of("int32", n_items, n_items)}
        return [{**answers, **pairs}]

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        channel = BinaryResponse(self.epsilon)
        event = LocalReports("binary response on every interaction bit", channel.epsilon, data.n_items, data.n_users)
        self.ledger_.record(event, simulation=key.is_simulation)
        sums, gram = sum_answers(data, key, channel, n_threads=n_threads, show_progress=show_progress)
        self.item_counts_ = (data.n_users + channel.decoder * sums) / 2
        self.neighbor_items_, self.neighbor_similarities_ = _find_neighbors(
            sums, gram, self.item_counts_, data.n_users, channel, min(self.n_neighbors, data.n_items - 1), n_threads
        )


def sum_answers(
    data: Interactions, key: Key, channel: BinaryResponse, *, n_threads: int = 1, show_progress: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Sum over users the randomized answers for all items, and the products of two answers.

    Parameters
    ----------
    data : Interactions
        Interactions; values are ignored.
    key : Key
        Source of the randomness.
    channel : BinaryResponse
        Randomizer of one bit.
    n_threads : int
        Number of threads, at least 1; the sums are integers and do not depend on it.
    show_progress : bool
        Whether to draw a progress bar.

    Returns
    -------
    sums : ndarray of shape (n_items,), int64
        Sum of the answers, -1 or 1, of each item.
    gram : ndarray of shape (n_items, n_items), int32
        Sum over users of the product of two answers.  Memory also holds the answers of one block of users.
    """
    n_users, n_items = data.shape
    check_summands("the number of users in data", n_users, n_users, _MAX_USERS, "fit a random part of the users")
    sums = np.zeros(n_items, dtype=np.int64)
    subkey = key.subkey(_BITS)
    step = max(1, _BLOCK_CELLS // n_items)
    # The blocks share these arrays: allocating new ones costs as much time as filling them.
    all_answers, all_reals = (np.empty((min(step, n_users), n_items), dtype=dtype) for dtype in (np.int8, np.float32))

    def blocks() -> Iterator[np.ndarray]:
        for number in progress_rounds(-(-n_users // step), show=show_progress, description="DPLCF"):
            block = data._user_range(number * step, min(n_users, (number + 1) * step))
            answers, reals = all_answers[: block.n_users], all_reals[: block.n_users]
            _kernel.respond_memberships(
                block.indptr, block.indices, block.global_user_ids, answers, subkey, channel.span, n_threads
            )
            np.copyto(reals, answers)
            with one_blas_thread():
                sums[:] += (np.ones(len(reals), dtype=np.float32) @ reals).astype(np.int64)
            yield reals

    gram = sum_products(blocks(), n_items, np.int32)
    return sums, gram


def estimate_cooccurrences(
    gram: np.ndarray, row_sums: np.ndarray, sums: np.ndarray, n_users: int, decoder: float
) -> NDArray[np.float64]:
    """Estimate the number of users with both items, without bias for two different items.

    Parameters
    ----------
    gram : ndarray of shape (n_rows, n_items)
        Some rows of the sums of products.
    row_sums : ndarray of shape (n_rows,)
        Sums of the answers of these rows' items.
    sums : ndarray of shape (n_items,)
        Sums of the answers of all items.
    n_users : int
        Number of reporting users.
    decoder : float
        Factor that debiases an answer, `BinaryResponse.decoder`.

    Returns
    -------
    ndarray of shape (n_rows, n_items), float64
        Estimated counts of pairs.  An answer a estimates its bit by (1 + decoder * a) / 2, independently for different
        items, so the sum of products of two estimates is unbiased.  The entry of an item with itself is biased.
    """
    # In place, since no other array of the fit is as large.
    products = decoder**2 / 4 * gram
    products += decoder / 4 * row_sums[:, None]
    products += n_users / 4 + decoder / 4 * sums
    return products


def _find_neighbors(
    sums: np.ndarray, gram: np.ndarray, counts: np.ndarray, n_users: int, channel: BinaryResponse, n_neighbors: int,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the most similar other items of each item, computed for a block of rows at a time."""
    n_items = len(sums)
    # Standard deviation of a debiased count.
    noise = math.sqrt(n_users * channel.value_variance(1.0)) / 2
    lengths = np.sqrt(np.maximum(counts, max(1.0, noise)))
    items = np.empty((n_items, n_neighbors), dtype=np.int32)
    similarities = np.empty((n_items, n_neighbors), dtype=np.float64)
    step = max(16, _CACHED_CELLS // n_items)
    for start in range(0, n_items, step):
        rows = slice(start, min(n_items, start + step))
        cosines = estimate_cooccurrences(gram[rows], sums[rows], sums, n_users, channel.decoder)
        # The noise may push a cosine out of [0, 1].
        cosines /= lengths[rows, None] * lengths
        np.clip(cosines, 0.0, 1.0, out=cosines)
        np.fill_diagonal(cosines[:, start:], -1.0)  # an item is not its own neighbour
        nearest, falling = ranking.top_k(cosines, max(n_neighbors, 1), n_threads=n_threads)
        items[rows], similarities[rows] = nearest[:, :n_neighbors], falling[:, :n_neighbors]
    return items, similarities
