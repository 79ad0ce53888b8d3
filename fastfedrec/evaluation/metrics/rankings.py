"""`Rankings`: input of metrics that are functions, both of this package and of a caller."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, plain_array
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.ranking import TopLists

__all__ = ["Rankings"]


@dataclass(frozen=True, eq=False)
class Rankings:
    """Ranks of the test items of all tested users, and the users' lists, as `evaluate` passes them to a function.

    Test interactions are sorted by user.

    Parameters
    ----------
    train : Interactions
        Training data, with the features of the items; its items are the catalogue.
    user_ids : ndarray of shape (n_users,)
        External ids of the tested users.
    users : ndarray of shape (n_test,), int64
        Position of each test interaction's user in `user_ids`.
    items : ndarray of shape (n_test,), int32
        Position of each test item in ``train.item_ids``.
    ranks : ndarray of shape (n_test,), float64
        Rank of each test item in its user's list, from 1; the mean rank of tied items.  In `evaluate_lists`, infinity
        if the item is not in the list.
    values : ndarray of shape (n_test,), float64
        Value of each test interaction, such as a rating.
    n_ranked : ndarray of shape (n_users,), int64
        Number of ranked items of each user.
    lists : object or None
        Source of `top`; None if test items were ranked against candidates.

    See Also
    --------
    evaluate : Calls a metric that is a function with its rankings.

    Examples
    --------
    >>> from fastfedrec import Key, Popularity, datasets
    >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
    >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
    >>> train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
    >>> def mean_rank(rankings):
    ...     return rankings.mean_by_user(rankings.ranks)
    >>> mean_rank.less_is_better = True
    >>> def users_per_item(rankings):  # mean number of train users of the first ten items
    ...     counts = rankings.train.interactions_per_item()
    ...     return counts[rankings.top(10)].mean(axis=1)
    >>> result = evaluate(Popularity().fit(train), train, test, metrics=["hr@1", mean_rank, users_per_item])
    >>> list(result), 1 < result["mean_rank"] < 40
    (['hr@1', 'mean_rank', 'users_per_item'], True)
    """

    train: Interactions
    user_ids: NDArray[Any]
    users: NDArray[np.int64]
    items: NDArray[np.int32]
    ranks: NDArray[np.float64]
    values: NDArray[np.float64]
    n_ranked: NDArray[np.int64]
    lists: TopLists | None = field(default=None, repr=False)

    @property
    def n_users(self) -> int:
        """Number of tested users.

        Returns
        -------
        int
            Length of `user_ids`.
        """
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue.

        Returns
        -------
        int
            Number of items of `train`.
        """
        return self.train.n_items

    @cached_property
    def item_counts(self) -> NDArray[np.int64]:
        """Number of train users with each item.

        Returns
        -------
        ndarray of shape (n_items,), int64
            Counts in the order of ``train.item_ids``.
        """
        return np.bincount(self.train.indices, minlength=self.n_items).astype(np.int64)

    def top(self, k: int) -> NDArray[np.int32]:
        """Return the first items of each user's list; a tie goes to the earlier item of the catalogue.

        Parameters
        ----------
        k : int
            Number of items, at least 1.

        Returns
        -------
        ndarray of shape (n_users, k), int32
            Positions in ``train.item_ids``, best first; -1 where a list has no item of the catalogue.

        Raises
        ------
        ValueError
            Test items were ranked against `candidates`, so there are no lists of all unseen items.
        """
        k = check_integer("k", k, low=1)
        if self.lists is None:
            raise ValueError("top needs lists of all unseen items, got candidates; use candidates=None")
        return self.lists.top(k)

    def mean_by_user(self, values: Any) -> NDArray[np.float64]:
        """Return the mean over each user's test interactions.

        Parameters
        ----------
        values : array_like of shape (n_test,)
            Value of each test interaction.

        Returns
        -------
        ndarray of shape (n_users,), float64
            Means.
        """
        array = plain_array("values", values)
        if array.shape != self.users.shape:
            raise ValueError(
                f"values must have one entry for each test interaction, shape {self.users.shape}, got {array.shape}"
            )
        sums = np.bincount(self.users, weights=array.astype(np.float64), minlength=self.n_users)
        return np.asarray(sums / np.bincount(self.users, minlength=self.n_users))
