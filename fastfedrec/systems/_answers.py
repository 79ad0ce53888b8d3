"""Queries of a fitted model: scores, recommendations, similar items, and explanations.

All of it is post-processing of the released arrays.  Results for a user also depend on that user's own row, so only the
user may see them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal, Self, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import Column
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_choice, check_flag, check_integer
from fastfedrec.core.interface import choose_words
from fastfedrec.core.numbers import show
from fastfedrec.data.conversion import InteractionsLike, as_frame_maker
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._candidates import choose_candidates, item_table
from fastfedrec.systems._new_users import read_new_users
from fastfedrec.systems._served import Served
from fastfedrec.systems._tables import as_column, find_rows, list_of_best

Best: TypeAlias = tuple[NDArray[Any], NDArray[np.float64]]  # ids of any type, and scores


class Answers(ABC):
    """The queries of `Recommender`, which need a fitted model."""

    #: Kind of object that answers the queries.
    _serves: ClassVar[type[Served]]

    interactions_: Interactions

    @abstractmethod
    def _fitted(self) -> Self:
        """Return the model with the parameters of its fit."""

    # ---- scores ------------------------------------------------------------------------------------------------------

    def score(self, user_ids: Column, item_ids: Column) -> NDArray[np.float64]:
        """Score pairs of a user and an item.

        Parameters
        ----------
        user_ids, item_ids : array_like of shape (n,)
            External ids, one item for each user.

        Returns
        -------
        ndarray of shape (n,), float64
            Scores; they are comparable within a user only.

        Raises
        ------
        KeyError
            An id is not in the model.
        """
        model = self._fitted()
        data = model.interactions_
        users, items = data.user_index(user_ids), data.item_index(item_ids)
        if len(users) != len(items):
            raise ValueError(f"item_ids must have one entry per user id ({len(users)}), got {len(items)}")
        served = model._served()
        scores = served.score_pairs(users, items)
        if (lacking := served.lack_scores(users)).any() and (popularity := served.popularity()) is not None:
            scores = np.where(lacking, popularity[items], scores)
        return scores

    def score_items(self, user_ids: Column) -> NDArray[np.float64]:
        """Score all items for each user, as `fastfedrec.evaluation.evaluate` ranks them.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            External ids.

        Returns
        -------
        ndarray of shape (n_users, n_items), float64
            Scores in the order of ``interactions_.item_ids``.

        Raises
        ------
        KeyError
            An id is not in the model.
        """
        model = self._fitted()
        users = model.interactions_.user_index(user_ids)
        served = model._served()
        scores = served.score_block(users)
        if (lacking := served.lack_scores(users)).any() and (popularity := served.popularity()) is not None:
            scores = np.where(lacking[:, None], popularity, scores)
        return scores

    @overload
    def recommend(
        self, user_ids: Column | None = None, n: int = 10, *, items: Any = None,
        exclude: Any = None, filter_seen: bool = True, unknown: str = "error",
        as_frame: Literal[False] = False,
    ) -> Best: ...  # fmt: skip

    @overload
    def recommend(
        self, user_ids: Column | None = None, n: int = 10, *, items: Any = None,
        exclude: Any = None, filter_seen: bool = True, unknown: str = "error",
        as_frame: bool | str,
    ) -> Any: ...  # fmt: skip

    @explains_calls
    def recommend(
        self,
        user_ids: Column | None = None,
        n: int = 10,
        *,
        items: Any = None,
        exclude: Any = None,
        filter_seen: bool = True,
        unknown: str = "error",
        as_frame: bool | str = False,
    ) -> Any:
        """Recommend the best items for each user.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,) or None
            External ids; None for all users.
        n : int
            Number of items, at least 1; a smaller number of candidates limits it.
        items : array_like, frame, mapping, list of lists or None
            External ids of the candidates; None for all items.  A frame has a column of ids (``item`` or a usual name
            such as ``movieId``), in which unknown ids are ignored, and its other columns are joined into the answer's
            frame.  ``{user: ids}``, or a list for each requested user, gives candidates of single users.
        exclude : array_like, mapping, list of lists or None
            External ids that are never recommended, for all users or for single ones as in `items`.  Unknown ids are
            ignored.  Ids for all users give a warning if all are unknown; lists of single users give none.
        filter_seen : bool
            Whether to leave out the items of the user's row.
        unknown : {"error", "popular", "skip"}
            Result for a user who is not in the model: a `KeyError`, the most popular items, or an empty row.
        as_frame : bool or {"pandas", "polars", "pyarrow"}
            Whether to return a frame, and of which library; True takes the first one that is installed.

        Returns
        -------
        ids : ndarray of shape (n_users, n)
            External item ids, best first; ties go to the earlier item.  Rows are in the order of the request.
        scores : ndarray of shape (n_users, n), float64
            Falling scores; a model with float32 factors rounds them to float32, and `score` does not.  A score of -inf
            marks a rank without a recommendation, and its id has no meaning: the last ranks of a user with fewer than
            `n` unseen candidates, and all ranks of an unknown user with ``unknown="skip"``.
        frame : frame
            With `as_frame`, instead of both: the columns user, item, score and rank (from 1), with a row for each
            recommendation, and the columns of a frame `items`.

        Raises
        ------
        KeyError
            A user or candidate is not in the model.
        ValueError
            There are no candidates, or a user has no items and the model does not know popularity.

        Notes
        -----
        A user without items gets the most popular items according to the released arrays: noisy counts or means, or
        the mean inner product with all items' factors.  The data are not counted again, so this has no privacy cost.
        A user with a row on a device or node counts as a user without items here: `with_users` serves it there.
        """
        model = self._fitted()
        data = model.interactions_
        make_frame = as_frame_maker(as_frame)
        users, rows = model._users(user_ids, unknown)
        filter_seen = check_flag("filter_seen", filter_seen)
        table = None if items is None else item_table(items)
        candidates = choose_candidates(data, users, items if table is None else table, exclude)
        columns = candidates.columns
        n = min(check_integer("n", n, low=1), data.n_items if columns is None else len(columns))
        ranked, scores = model._served().rank(rows, n, candidates, filter_seen, unknown)
        ids = data.item_ids[ranked if columns is None else columns[ranked]]
        if make_frame is None:
            return ids, scores
        answer = list_of_best(users, ids, scores)
        return make_frame(answer if table is None else table.join(answer))

    @overload
    def recommend_for(
        self, item_ids: Any, n: int = 10, *, items: Any = None, exclude: Any = None,
        filter_seen: bool = True, unknown: str = "error", as_frame: Literal[False] = False,
    ) -> Best: ...  # fmt: skip

    @overload
    def recommend_for(
        self, item_ids: Any, n: int = 10, *, items: Any = None, exclude: Any = None,
        filter_seen: bool = True, unknown: str = "error", as_frame: bool | str,
    ) -> Any: ...  # fmt: skip

    @explains_calls
    def recommend_for(
        self,
        item_ids: Any,
        n: int = 10,
        *,
        items: Any = None,
        exclude: Any = None,
        filter_seen: bool = True,
        unknown: str = "error",
        as_frame: bool | str = False,
    ) -> Any:
        """Recommend the best items for new users, who were not in the fit, from their items.

        Parameters
        ----------
        item_ids : array_like, mapping, list of lists or mappings, frame, SciPy matrix or Interactions
            External ids of the items of one user, or {item: value}.  For several users: a list of these, whose users
            are numbered from 0; {user: ids} or {user: {item: value}}; a frame with the columns user and item, and
            optionally value; a matrix with a column for each of the model's items; or interactions, which may have
            other items in another order.  Models of ratings need values.
        n : int
            Number of items, see `recommend`; also for `filter_seen` and `as_frame`.
        items, exclude : array_like, frame, mapping, list of lists or None
            Candidates, and items that are never recommended, see `recommend`.
        filter_seen : bool
            Whether to leave out the given items.
        unknown : {"error", "skip"}
            Whether an item that is not in the model is a `ValueError` or is left out.
        as_frame : bool or {"pandas", "polars", "pyarrow"}
            Whether to return a frame; a single user has the id 0.

        Returns
        -------
        ids, scores : ndarray of shape (n_users, n)
            See `recommend`: a row for each user, in the order of a list or mapping, or of the ids in a table.

        Raises
        ------
        TypeError
            The model serves only the users of its fit, or ratings are missing.
        ValueError
            An item is not in the model.

        Notes
        -----
        A new user's device computes this from the released arrays and the user's own items.  It sends no message, so it
        has no privacy cost.
        """
        model = self._fitted()
        check_choice("unknown", unknown, ("error", "skip"))
        served = model._bring(
            lambda: read_new_users(
                item_ids, model.interactions_, takes_ratings=hasattr(model, "predict"), unknown=unknown
            )
        )
        return served.recommend(
            None, n, items=items, exclude=exclude, filter_seen=filter_seen, as_frame=as_frame
        )  # fmt: skip

    # ---- items -------------------------------------------------------------------------------------------------------

    @overload
    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: Literal[False] = False) -> Best: ...

    @overload
    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: bool | str) -> Any: ...

    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: bool | str = False) -> Any:
        """Find the items that are most similar to each of some items, without the item itself.

        Parameters
        ----------
        item_ids : array_like of shape (n_items,)
            External ids.
        n : int
            Number of similar items, at least 1; the number of other items limits it.
        as_frame : bool or {"pandas", "polars", "pyarrow"}
            Whether to return a frame, and of which library, see `recommend`.

        Returns
        -------
        ids : ndarray of shape (n_items, n)
            External item ids, most similar first; ties go to the earlier item.
        similarities : ndarray of shape (n_items, n), float64
            Falling similarities: cosines of factors, or the model's weights from item to item; -inf without an item.
        frame : frame
            With `as_frame`, instead of both: the columns item, similar, score and rank (from 1).

        Raises
        ------
        KeyError
            An item is not in the model.
        TypeError
            The model has no factors or neighbours to compare items by.

        Notes
        -----
        This is post-processing of the released arrays, so the model's guarantee covers it.
        """
        model = self._fitted()
        data = model.interactions_
        make_frame = as_frame_maker(as_frame)
        item_column = as_column("item_ids", item_ids)
        columns = data.item_index(item_column)
        n = min(check_integer("n", n, low=1), data.n_items - 1)
        ranked, scores = model._served().similar(columns, n)
        ids = data.item_ids[ranked]
        if make_frame is None:
            return ids, scores
        table = list_of_best(data.item_ids[columns], ids, scores, "of")
        return make_frame({"item": table.pop("of"), "similar": table.pop("item")} | table)

    def explain(self, user_id: Hashable, item_id: Hashable) -> Best:
        """Compute the contribution of each of a user's items to the score of an item.

        Parameters
        ----------
        user_id, item_id : hashable
            External ids.

        Returns
        -------
        ids : ndarray of shape (n_user_items,)
            External ids of the user's items, the largest contribution first.
        contributions : ndarray of shape (n_user_items,), float64
            Falling contributions; their sum is ``score([user_id], [item_id])``.

        Raises
        ------
        KeyError
            An id is not in the model.
        TypeError
            The model's scores are not sums over the user's items.
        ValueError
            The user has no items, or the model scores all users by popularity.

        Notes
        -----
        The result depends on the user's own row, and no guarantee protects that row: show it to this user only.
        """
        for name, given in (("user_id", user_id), ("item_id", item_id)):
            if isinstance(given, list | np.ndarray) and np.ndim(given):
                raise TypeError(f"{name} must be a single id, got {show(given)}; pass one of its entries")
        model = self._fitted()
        data = model.interactions_
        row, column = data.user_index([user_id]), data.item_index([item_id])
        user_rows = data._take_users(row)
        if not user_rows.n_interactions:
            raise ValueError(f"user_id must be of a user with items, got {user_id!r}, who gets the most popular items")
        contributions = model._served().contributions(user_rows, int(column[0]))
        order = np.argsort(-contributions, kind="stable")
        return data.item_ids[user_rows.indices[order]], contributions[order]

    # ---- to be overridden by models ----------------------------------------------------------------------------------

    def _served(self) -> Served:
        """Return the released arrays with the rows of the model's users."""
        return self._serves.of(self)

    @abstractmethod
    def _bring(self, read_rows: Callable[[], InteractionsLike]) -> Any:
        """Return a model that serves the users of the rows that a function reads."""

    # ---- ranking -----------------------------------------------------------------------------------------------------

    def _users(self, user_ids: Column | None, unknown: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the requested ids and their rows, -1 for an unknown id that `unknown` allows."""
        data = self.interactions_
        check_choice("unknown", unknown, ("error", "popular", "skip"))
        if user_ids is None:
            if not data.n_users:
                raise ValueError(
                    "user_ids must be given, since this model holds no users; pass rows to with_users or recommend_for"
                )
            return data.user_ids, np.arange(data.n_users)
        if unknown == "error":
            try:
                rows = data.user_index(user_ids)
            except KeyError as error:
                remedy = choose_words(
                    "pass unknown='popular', or the items of this user to recommend_for",
                    "pass --unknown popular, or the items of this user as --items-of",
                )
                raise KeyError(f"{error.args[0]}; {remedy}") from None
            return data.user_ids[rows], rows
        id_column = as_column("user_ids", user_ids)
        return id_column, find_rows(data, "user", id_column, "user_ids")
