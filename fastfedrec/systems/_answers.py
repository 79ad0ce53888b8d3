"""What a fitted model answers: scores, recommendations, similar items, and why.

Everything here is computed from what the model released and, for a user's own answers, from that user's own row: it
costs nothing, and what is shown to a user belongs to that user.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal, Self, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_choice, check_flag, check_integer
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._tables import (
    as_column,
    choose_columns,
    find_rows,
    frame_maker,
    list_of_best,
    people_of,
    seen_among,
)

_BLOCK_CELLS = 2**24  # scores held at once by `recommend`
_PAIR_CELLS = 2**22  # and while pairs are looked up

Best: TypeAlias = tuple[NDArray[Any], NDArray[np.float64]]  # ids, which are of any type, and scores


class Answers(ABC):
    """The part of `Recommender` that is used after `fit`."""

    #: Whether nothing can be said of a user who has nothing, but what is popular.
    _needs_rows: ClassVar[bool] = True

    interactions_: Interactions

    @abstractmethod
    def _fitted(self) -> Self:
        """The model with the parameters that it was fitted with."""

    # ---- scores ------------------------------------------------------------------------------------------------------

    def score(self, user_ids: Column, item_ids: Column) -> NDArray[np.float64]:
        """How strongly each user is predicted to want the item beside it.

        Parameters
        ----------
        user_ids, item_ids : array_like of shape (n,)
            External ids, taken in pairs.

        Returns
        -------
        ndarray of shape (n,), float64
            Comparable within a user only.

        Raises
        ------
        KeyError
            An id the model was not fitted on.
        """
        model = self._fitted()
        data = model.interactions_
        users, items = data.user_index(user_ids), data.item_index(item_ids)
        if len(users) != len(items):
            raise ValueError(f"item_ids must have one entry per user id ({len(users)}), got {len(items)}")
        scores = model._score_pairs(users, items)
        if (unheard := model._unheard(users)).any() and (popularity := model._popularity()) is not None:
            scores = np.where(unheard, popularity[items], scores)
        return scores

    def score_items(self, user_ids: Column) -> NDArray[np.float64]:
        """The scores of all items for each user: what `fastfedrec.evaluation.evaluate` ranks.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,)
            External ids.

        Returns
        -------
        ndarray of shape (n_users, n_items), float64
            In the order of ``interactions_.item_ids``.

        Raises
        ------
        KeyError
            An id the model was not fitted on.
        """
        model = self._fitted()
        users = model.interactions_.user_index(user_ids)
        scores = model._score_block(users)
        if (unheard := model._unheard(users)).any() and (popularity := model._popularity()) is not None:
            scores = np.where(unheard[:, None], popularity, scores)
        return scores

    @overload
    def recommend(
        self, user_ids: Column | None = None, n: int = 10, *, items: Column | None = None,
        exclude: Column | None = None, filter_seen: bool = True, unknown: str = "error",
        as_frame: Literal[False] = False,
    ) -> Best: ...  # fmt: skip

    @overload
    def recommend(
        self, user_ids: Column | None = None, n: int = 10, *, items: Column | None = None,
        exclude: Column | None = None, filter_seen: bool = True, unknown: str = "error",
        as_frame: bool,
    ) -> Any: ...  # fmt: skip

    def recommend(
        self,
        user_ids: Column | None = None,
        n: int = 10,
        *,
        items: Column | None = None,
        exclude: Column | None = None,
        filter_seen: bool = True,
        unknown: str = "error",
        as_frame: bool = False,
    ) -> Any:
        """The best items of each user.

        Parameters
        ----------
        user_ids : array_like of shape (n_users,) or None
            External ids; None for all users.
        n : int
            How many items; where there are fewer to choose from, so many as there are.
        items : array_like or None
            External ids of the candidates; None for all items.
        exclude : array_like or None
            External ids that are recommended to nobody; those that the model does not know are ignored, with a warning
            where it knows none of them.
        filter_seen : bool
            Leave out the items the user was fitted with.
        unknown : {"error", "popular", "skip"}
            What a user gets whom the model was not fitted on: nothing, but a `KeyError`; what is popular; or an empty
            row.
        as_frame : bool
            Return a frame of pandas, or of polars where pandas is missing.

        Returns
        -------
        ids : ndarray of shape (n_users, n)
            External item ids, best first; ties go to the earlier item.  A row for each user id, in their order.
        scores : ndarray of shape (n_users, n), float64
            Falling; of a model with factors of float32 they are rounded to that type, and those of `score` are not.  A
            score of -inf says that there is no recommendation at this place, whatever stands in `ids`: the
            last places of a user with fewer than `n` unseen candidates, and all of an unknown user with
            ``unknown="skip"``.
        frame : DataFrame
            With ``as_frame=True``, in place of both: the columns user, item, score and rank (from 1), a row for each
            recommendation.

        Raises
        ------
        KeyError
            An unknown user or candidate.
        ValueError
            No candidate is left; or a user has nothing, and the model does not know what is popular.

        Notes
        -----
        A user without an item gets what is popular by what the model released: its noisy counts or means, or the mean
        of the inner products with all items' factors.  It is never counted anew, so no more is told than was paid for.
        A user whose row is on a device or node of its own is, here, one without an item: `with_users` serves it there.
        """
        model = self._fitted()
        data = model.interactions_
        make_frame = frame_maker() if check_flag("as_frame", as_frame) else None
        users, rows = model._users(user_ids, unknown)
        filter_seen = check_flag("filter_seen", filter_seen)
        columns = choose_columns(data, items, exclude)
        n = min(check_integer("n", n, low=1), data.n_items if columns is None else len(columns))
        places, scores = model._ranked(rows, n, columns, filter_seen, unknown)
        ids = data.item_ids[places if columns is None else columns[places]]
        return (ids, scores) if make_frame is None else make_frame(list_of_best(users, ids, scores))

    @overload
    def recommend_for(
        self, item_ids: Any, n: int = 10, *, items: Column | None = None, exclude: Column | None = None,
        filter_seen: bool = True, unknown: str = "error", as_frame: Literal[False] = False,
    ) -> Best: ...  # fmt: skip

    @overload
    def recommend_for(
        self, item_ids: Any, n: int = 10, *, items: Column | None = None, exclude: Column | None = None,
        filter_seen: bool = True, unknown: str = "error", as_frame: bool,
    ) -> Any: ...  # fmt: skip

    def recommend_for(
        self,
        item_ids: Any,
        n: int = 10,
        *,
        items: Column | None = None,
        exclude: Column | None = None,
        filter_seen: bool = True,
        unknown: str = "error",
        as_frame: bool = False,
    ) -> Any:
        """The best items of people who were not there when the model was fitted, by what they have.

        Parameters
        ----------
        item_ids : array_like, mapping, frame, SciPy matrix or Interactions
            External ids of the items of one person; {item: value} of one person; a frame with the columns user and
            item, and value if any; a matrix with a column for each of the model's items; or interactions, whose items
            may be others and in another order.  Models of ratings need values.
        n : int
            As in `recommend`; so are `items`, `exclude`, `filter_seen` and `as_frame`.
        items, exclude : array_like or None
            Candidates, and what is recommended to nobody.
        filter_seen : bool
            Leave out the items that the person has.
        unknown : {"error", "skip"}
            What becomes of an item that the model does not know: a `ValueError`, or it is left out.
        as_frame : bool
            Return a frame; one person is user 0.

        Returns
        -------
        ids, scores : ndarray of shape (n_people, n)
            As from `recommend`: a row for each person, and one for one person.  People of a frame are in the order of
            their ids.

        Raises
        ------
        TypeError
            The model serves only those whom it was fitted on; or ratings are missing.
        ValueError
            An unknown item.

        Notes
        -----
        This is what the device of somebody new computes, from what was released and that person's own items: nothing
        is sent, and it costs nobody anything.
        """
        model = self._fitted()
        check_choice("unknown", unknown, ("error", "skip"))
        served = model._bring(
            lambda: people_of(item_ids, model.interactions_, takes_ratings=hasattr(model, "predict"), unknown=unknown)
        )
        return served.recommend(
            None, n, items=items, exclude=exclude, filter_seen=filter_seen, as_frame=as_frame
        )  # fmt: skip

    # ---- items -------------------------------------------------------------------------------------------------------

    @overload
    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: Literal[False] = False) -> Best: ...

    @overload
    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: bool) -> Any: ...

    def similar_items(self, item_ids: Column, n: int = 10, *, as_frame: bool = False) -> Any:
        """The items that are most like each of some items, without the item itself.

        Parameters
        ----------
        item_ids : array_like of shape (n_items,)
            External ids.
        n : int
            How many; where there are fewer others, so many as there are.
        as_frame : bool
            Return a frame of pandas, or of polars where pandas is missing.

        Returns
        -------
        ids : ndarray of shape (n_items, n)
            External item ids, most similar first; ties go to the earlier item.
        similarities : ndarray of shape (n_items, n), float64
            Falling: cosines of the items' factors, or the model's own weights from item to item.  A similarity of -inf
            says that there is no item at this place: the model knows fewer neighbours, or nothing of the item.
        frame : DataFrame
            With ``as_frame=True``, in place of both: the columns item, similar, score and rank (from 1).

        Raises
        ------
        KeyError
            An unknown item.
        TypeError
            The model has nothing that items could be compared by.

        Notes
        -----
        It is computed from what was released, so that the model's guarantee covers it.
        """
        model = self._fitted()
        data = model.interactions_
        make_frame = frame_maker() if check_flag("as_frame", as_frame) else None
        wanted = as_column("item_ids", item_ids)
        columns = data.item_index(wanted)
        n = min(check_integer("n", n, low=1), data.n_items - 1)
        places, scores = model._similar(columns, n)
        ids = data.item_ids[places]
        if make_frame is None:
            return ids, scores
        found = list_of_best(data.item_ids[columns], ids, scores, "of")
        return make_frame({"item": found.pop("of"), "similar": found.pop("item")} | found)

    def explain(self, user_id: Hashable, item_id: Hashable) -> Best:
        """What each of a user's items adds to the score of an item.

        Parameters
        ----------
        user_id, item_id : hashable
            External ids.

        Returns
        -------
        ids : ndarray of shape (n_own,)
            External ids of the user's items, the one that adds most first.
        contributions : ndarray of shape (n_own,), float64
            Falling; they add up to ``score([user_id], [item_id])``.

        Raises
        ------
        KeyError
            An unknown id.
        TypeError
            The model's scores are no sums over the user's items.
        ValueError
            The user has nothing, or the model scores everybody by what is popular.

        Notes
        -----
        It is computed from what was released and from the user's own row, which no guarantee hides from whoever reads
        the answer: show it to that user alone.
        """
        model = self._fitted()
        data = model.interactions_
        row, column = data.user_index([user_id]), data.item_index([item_id])
        own = data._take_users(row)
        if not own.n_interactions:
            raise ValueError(f"user_id must be of a user with items, got {user_id!r}, who gets what is popular")
        contributions = model._contributions(own, int(column[0]))
        order = np.argsort(-contributions, kind="stable")
        return data.item_ids[own.indices[order]], contributions[order]

    # ---- what models tell of themselves ------------------------------------------------------------------------------

    def _popularity(self) -> np.ndarray | None:
        """A score of each item for whom nothing is known of, from what was released; None where that does not tell."""
        return None

    def _unheard(self, rows: np.ndarray) -> np.ndarray:
        """Which rows the model has nothing to score by, so that it must be by what is popular."""
        indptr = self.interactions_.indptr
        return indptr[rows + 1] == indptr[rows] if self._needs_rows else np.zeros(len(rows), dtype=bool)

    @abstractmethod
    def _score_block(self, users: np.ndarray) -> np.ndarray:
        """Scores of these rows for all items, float64."""

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Scores of (row, column) pairs: the score that a pair has in its user's row, whatever is asked with it."""
        rows, where = np.unique(users, return_inverse=True)
        order = np.argsort(where, kind="stable")
        step = max(1, _PAIR_CELLS // self.interactions_.n_items)
        edges = np.searchsorted(where[order], np.arange(0, len(rows) + step, step))
        scores = np.empty(len(users), dtype=np.float64)
        for number, start in enumerate(range(0, len(rows), step)):
            pairs = order[edges[number] : edges[number + 1]]
            block = self._score_block(rows[start : start + step])
            scores[pairs] = block[where[pairs] - start, items[pairs]]
        return scores

    def _best_items(
        self, rows: np.ndarray, n: int, seen: Any, columns: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best of some columns (None: of all) for some rows, as places among them, and their scores."""
        scores = self._score_block(rows)
        return ranking.top_k(scores if columns is None else scores[:, columns], n, seen=seen)

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns most like each of these, and how much."""
        raise TypeError(f"{type(self).__name__} has nothing that items could be compared by; use a model with factors")

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        """What each item of one user adds to the score of a column."""
        raise TypeError(
            f"the scores of {type(self).__name__} are no sums over a user's items, so nothing explains them"
        )

    def _bring(self, people: Callable[[], InteractionsLike]) -> Any:
        """A model that serves the users that a function gives."""
        raise TypeError(f"{type(self).__name__} serves only the users it was fitted on; fit it again with the others")

    # ---- how they are ranked -----------------------------------------------------------------------------------------

    def _users(self, user_ids: Column | None, unknown: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids that were asked for, and their rows; -1 for one that is unknown and may be."""
        data = self.interactions_
        check_choice("unknown", unknown, ("error", "popular", "skip"))
        if user_ids is None:
            if not data.n_users:
                raise ValueError(
                    "user_ids must be given, for this model holds no users; with_users and recommend_for serve those "
                    "who bring their rows"
                )
            return data.user_ids, np.arange(data.n_users)
        if unknown == "error":
            rows = data.user_index(user_ids)
            return data.user_ids[rows], rows
        wanted = as_column("user_ids", user_ids)
        return wanted, find_rows(data, "user", wanted, "user_ids")

    def _ranked(
        self, rows: np.ndarray, n: int, columns: np.ndarray | None, filter_seen: bool, unknown: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places among the columns, and scores, of each row; those that are unheard of by what is popular."""
        places = np.empty((len(rows), n), dtype=np.int64)
        scores = np.empty((len(rows), n), dtype=np.float64)
        missing = rows < 0
        popular = np.zeros(len(rows), dtype=bool) if unknown == "skip" else missing.copy()
        popular[~missing] = self._unheard(rows[~missing])
        places[missing], scores[missing] = np.arange(n), -np.inf
        if popular.any():
            places[popular], scores[popular] = self._most_popular(rows[popular], n, columns)
        usual = ~(missing | popular)
        where = slice(None) if usual.all() else np.flatnonzero(usual)
        asked, step = rows[where], max(1, _BLOCK_CELLS // self.interactions_.n_items)
        for start in range(0, len(asked), step):
            block = asked[start : start + step]
            seen = seen_among(self.interactions_, block, columns) if filter_seen else None
            into = slice(start, start + step) if isinstance(where, slice) else where[start : start + step]
            places[into], scores[into] = self._best_items(block, n, seen, columns)
        return places, scores

    def _most_popular(self, rows: np.ndarray, n: int, columns: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        popularity = self._popularity()
        if popularity is None:
            known = rows[rows >= 0]
            who = "unknown='popular' needs what is popular"
            if len(known):
                who = f"user {id_at(self.interactions_.user_ids, known[0])!r} has no items"
            raise ValueError(
                f"{who}, and what {type(self).__name__} released does not tell what is popular; leave such users out, "
                "or take what is popular from a DPPopularity"
            )
        places, scores = ranking.top_k(popularity[None] if columns is None else popularity[None, columns], n)
        return places[0], scores[0]
