"""Mean percentile rank of held-out interactions among all items; public in `fastfedrec.evaluation`."""

from typing import Any

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions

__all__ = ["mean_percentile_rank"]

#: Minimum sum of weights, 2.2e-308: products of a smaller one with ranks are subnormal and lose significant digits.
_MIN_WEIGHT = float(np.finfo(np.float64).tiny)


def mean_percentile_rank(
    model: Any, test: InteractionsLike, *, seen: InteractionsLike | None = None, batch_size: int = 2**22
) -> float:
    """Return the mean percentile rank of the test interactions, weighted by their values: 0 is best, 0.5 is random.

    Parameters
    ----------
    model : object
        Model with ``score(user_ids, item_ids)``, which takes two arrays of external ids of equal length and returns
        one score for each pair.
    test : Interactions, SciPy sparse matrix or array, or frame
        Interactions of at least one user, with ratings or counts as values; interactions without values weigh 1.
    seen : Interactions, matrix, frame or None
        Items that are not ranked for the users who have them, with the same users and items as `test`, such as the
        train part of `RandomHoldout`.  None ranks every item.
    batch_size : int
        Maximum number of score comparisons in memory; a single user may exceed it.  The result does not depend on it.

    Returns
    -------
    float
        Quotient of sum(x rank) and sum(x) over test interactions with value x.  The rank of an item is the share of
        other ranked items with a higher score, where items with the same score count one half.  A constant model gets
        0.5.

    Raises
    ------
    ValueError
        The test is empty or has values below 0 or only zeros; `seen` has other users or items; scores are NaN or have
        the wrong shape; or a user has fewer than two ranked items.

    References
    ----------
    .. [1] Hu, Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008, equation 8.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import mean_percentile_rank
    >>> class LowIdsFirst:
    ...     def score(self, user_ids, item_ids):
    ...         return -item_ids
    >>> mean_percentile_rank(LowIdsFirst(), Interactions.from_arrays([1, 1, 2], [0, 2, 1], [3, 1, 4]))
    0.375
    """
    if not callable(getattr(model, "score", None)):
        raise TypeError(f"model must have a method score(user_ids, item_ids), {type(model).__name__} has none")
    test = as_interactions("test", test)
    if seen is not None:
        seen = as_interactions("seen", seen)
        same = np.array_equal(seen.user_ids, test.user_ids) and np.array_equal(seen.item_ids, test.item_ids)
        if not same:
            raise ValueError("seen and test must have the same users and items; make both by RandomHoldout")
    batch_size = check_integer("batch_size", batch_size, low=1)
    if (lowest := float(test.values_or_ones().min(initial=0.0))) < 0:
        raise ValueError(
            f"test must hold values of at least 0, which weigh the ranks, got {lowest:g}; call test.positive() first"
        )
    test = test.positive()
    total = total_weight(test.values_or_ones())
    if not total > 0:
        raise ValueError(f"test must hold interactions with values above 0, got {test!r}; pass counts or ratings")
    users = np.flatnonzero(test.interactions_per_user())
    ends = np.cumsum(test.interactions_per_user()[users]) * test.n_items
    total_rank, start = 0.0, 0
    # Each batch has as many whole users as fit into `batch_size` comparisons, and at least one.
    while start < len(users):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + batch_size, side="right")))
        total_rank += _weighted_ranks(model, test, seen, users[start:stop])
        start = stop
    return total_rank / total


def total_weight(values: np.ndarray) -> float:
    """Return the sum of the values that weigh percentile ranks.

    Parameters
    ----------
    values : ndarray of shape (n,), float64
        Values of the test interactions, at least 0.

    Returns
    -------
    float
        Finite sum, either 0 or at least 2.2e-308.

    Raises
    ------
    ValueError
        The sum overflows, or is so small that products with ranks lose significant digits.
    """
    with np.errstate(over="ignore"):
        total = float(values.sum())
    if not np.isfinite(total):
        raise ValueError(f"values of test must add up to a finite number, got up to {values.max():g}; rescale them")
    if 0 < total < _MIN_WEIGHT:
        raise ValueError(f"values of test must add up to at least {_MIN_WEIGHT:.1e}, got {total:g}; rescale them")
    return total


def _weighted_ranks(model: Any, test: Interactions, seen: Interactions | None, users: np.ndarray) -> float:
    """Return the sum of value times rank over the test interactions of these users."""
    shape = len(users), test.n_items
    name = type(model).__name__
    pairs = np.repeat(test.user_ids[users], test.n_items), np.tile(test.item_ids, len(users))
    scores = np.asarray(model.score(*pairs), dtype=np.float64)
    if scores.shape != pairs[0].shape:
        raise ValueError(f"{name}.score must return one score a pair, shape {pairs[0].shape}, got {scores.shape}")
    if np.isnan(scores).any():
        raise ValueError(f"{name}.score returned NaN for {int(np.isnan(scores).sum())} pairs; has the model diverged?")
    scores = scores.reshape(shape)
    tested = test._take_users(users)
    rows, columns = np.repeat(np.arange(len(users)), tested.interactions_per_user()), tested.indices
    ranked = np.ones(shape, dtype=bool)
    if seen is not None:
        known = seen._take_users(users)
        ranked[np.repeat(np.arange(len(users)), known.interactions_per_user()), known.indices] = False
    ranked[rows, columns] = True  # test items are ranked even if they are in `seen`
    if (n_others := ranked.sum(axis=1)[rows] - 1).min() < 1:
        raise ValueError("test needs users with at least two items to rank; pass fewer items as seen")
    test_scores, all_scores, counted = scores[rows, columns][:, None], scores[rows], ranked[rows]
    # Each row is one test interaction, compared with all ranked items of its user.
    above = ((all_scores > test_scores) & counted).sum(axis=1)
    same = ((all_scores == test_scores) & counted).sum(axis=1) - 1  # without the item itself
    return float(tested.values_or_ones() @ ((above + 0.5 * same) / n_others))
