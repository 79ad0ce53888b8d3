"""Interactions: a checked, immutable users x items matrix in compressed rows, with external ids."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse

from fastfedrec._check import check_integer, check_real
from fastfedrec._ids import IdIndex, axis_ids, column_array, encode_ids
from fastfedrec._pairs import check_item_count, check_timestamps, check_values, compact_values, merge_duplicates

#: A timestamp that is not known.
MISSING_TIMESTAMP = np.iinfo(np.int64).min


class Interactions:
    """Users x items in compressed sparse rows, with external ids, values and (where known) timestamps.

    Make one with `from_arrays`, `from_scipy` or `from_dataframe`.  All arrays are read-only.  Rows are users; columns
    within a row are sorted and distinct.  Every selection (`filter_core`, `top_items`, `shard`, ...) returns a new
    object, keeps ids and features aligned, and carries each user's global id, which names that user's random streams.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Row starts.
    indices : ndarray of shape (n_interactions,), int32
        Item of each interaction, ascending within a row.
    values : ndarray of shape (n_interactions,) or None
        float32 or float64, finite and at least 0; None where every value is 1.
    timestamps : ndarray of shape (n_interactions,), int64, or None
        Seconds, or whatever unit the source uses; `MISSING_TIMESTAMP` where one is not known.
    user_ids, item_ids : ndarray of shape (n_users,) and (n_items,)
        External ids, distinct.
    global_user_ids : ndarray of shape (n_users,), uint64
        The row each user had where the data were first built.
    user_features, item_features : mapping of str to ndarray
        Columns aligned with the users and items.

    Attributes
    ----------
    n_users, n_items, n_interactions : int
        Sizes.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> data = Interactions.from_arrays(["ann", "bob", "ann"], [10, 10, 30])
    >>> data
    <Interactions: 2 users x 2 items, 3 interactions>
    >>> data.to_scipy().toarray()
    array([[1., 1.],
           [1., 0.]], dtype=float32)
    """

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray | None,
        timestamps: np.ndarray | None,
        user_ids: np.ndarray,
        item_ids: np.ndarray,
        global_user_ids: np.ndarray,
        user_features: Mapping[str, np.ndarray] | None = None,
        item_features: Mapping[str, np.ndarray] | None = None,
    ):
        self.indptr = _frozen(indptr, np.int64)
        self.indices = _frozen(indices, np.int32)
        self.values = None if values is None else _frozen(values)
        self.timestamps = None if timestamps is None else _frozen(timestamps, np.int64)
        self.user_ids = _frozen(user_ids)
        self.item_ids = _frozen(item_ids)
        self.global_user_ids = _frozen(global_user_ids, np.uint64)
        self.user_features = {name: _frozen(column) for name, column in (user_features or {}).items()}
        self.item_features = {name: _frozen(column) for name, column in (item_features or {}).items()}
        self._user_index: IdIndex | None = None
        self._item_index: IdIndex | None = None

    # ---- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        users: Sequence[Hashable] | np.ndarray,
        items: Sequence[Hashable] | np.ndarray,
        values: Sequence[float] | np.ndarray | None = None,
        timestamps: Sequence[int] | np.ndarray | None = None,
        *,
        duplicates: str | None = None,
    ) -> Self:
        """Build from one row per interaction.

        Ids of one comparable type are put in ascending order, others in order of first appearance.

        Parameters
        ----------
        users, items : array_like of shape (n,)
            External ids: any hashable; None and NaN are refused.
        values : array_like of shape (n,) or None
            Ratings or counts, finite and at least 0 (an explicit 0 is kept); None makes each row a count of 1.
        timestamps : array_like of shape (n,) or None
            Integers; kept beside their interaction.
        duplicates : {"sum", "last", "max", "error"} or None
            What becomes of a user-item pair that stands twice.  None sums, and warns where `values` were given,
            because the sum of two ratings is no rating.  The latest timestamp is kept ("last": the last row's).

        Returns
        -------
        Interactions
            Every user and item that appears; none of them empty.

        Raises
        ------
        ValueError
            Different lengths, a missing id, a value that is NaN, infinite or negative; the row is named.
        """
        user_ids, user_rows = encode_ids("users", users)
        item_ids, item_rows = encode_ids("items", items)
        n = len(user_rows)
        if len(item_rows) != n:
            raise ValueError(f"items must have one entry per user entry ({n}), got {len(item_rows)}")
        data = None if values is None else check_values("values", values, n)
        times = None if timestamps is None else check_timestamps(timestamps, n)
        check_item_count(len(item_ids))
        order = np.lexsort((item_rows, user_rows))  # stable: equal pairs stay in the caller's order
        user_rows, item_rows = user_rows[order], item_rows[order]
        data = None if data is None else data[order]
        times = None if times is None else times[order]
        user_rows, item_rows, data, times = merge_duplicates(
            user_rows, item_rows, data, times, duplicates, user_ids, item_ids
        )
        indptr = np.zeros(len(user_ids) + 1, dtype=np.int64)
        np.cumsum(np.bincount(user_rows, minlength=len(user_ids)), out=indptr[1:])
        return cls(
            indptr, item_rows.astype(np.int32), compact_values(data), times,
            user_ids, item_ids, np.arange(len(user_ids), dtype=np.uint64),
        )  # fmt: skip

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        user_ids: Sequence[Hashable] | np.ndarray | None = None,
        item_ids: Sequence[Hashable] | np.ndarray | None = None,
    ) -> Self:
        """Build from a SciPy sparse matrix or array of users x items.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array of shape (n_users, n_items)
            Any format; duplicate entries are summed, as SciPy does; explicit zeros and empty rows are kept.
        user_ids, item_ids : array_like or None
            External ids, distinct; None numbers them from 0.

        Returns
        -------
        Interactions
            The same shape as `matrix`.
        """
        if not scipy.sparse.issparse(matrix):
            raise TypeError(f"matrix must be a SciPy sparse matrix, got {type(matrix).__name__}; see from_arrays")
        if matrix.ndim != 2:
            raise ValueError(f"matrix must have 2 dimensions, got shape {matrix.shape}")
        csr = scipy.sparse.csr_array(matrix, copy=True)
        if csr.dtype.kind == "b":
            csr = csr.astype(np.float32)
        csr.sum_duplicates()
        data = check_values("matrix values", csr.data, csr.nnz)
        n_users, n_items = csr.shape
        check_item_count(n_items)
        return cls(
            csr.indptr, csr.indices, compact_values(data), None,
            axis_ids("user_ids", user_ids, n_users), axis_ids("item_ids", item_ids, n_items),
            np.arange(n_users, dtype=np.uint64),
        )  # fmt: skip

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        user: str = "user",
        item: str = "item",
        value: str | None = None,
        timestamp: str | None = None,
        duplicates: str | None = None,
    ) -> Self:
        """Build from a pandas or polars frame with one row per interaction.

        Parameters
        ----------
        frame : pandas.DataFrame or polars.DataFrame
            Anything whose columns are read by name and offer ``to_numpy``.
        user, item : str
            Names of the id columns.
        value, timestamp : str or None
            Names of the value and timestamp columns, if any.
        duplicates : {"sum", "last", "max", "error"} or None
            As in `from_arrays`.

        Returns
        -------
        Interactions
            As from `from_arrays`.

        Raises
        ------
        KeyError
            A column that is not there; the columns that are get listed.
        """

        def column(argument, name):
            if name not in frame.columns:
                raise KeyError(f"{argument}={name!r} is not a column; the frame has {list(frame.columns)}")
            series = frame[name]
            missing = series.is_null().sum() if hasattr(series, "is_null") else series.isna().sum()
            if missing:
                raise ValueError(f"column {name!r} ({argument}) has {missing} missing entries; drop or fill those rows")
            return series.to_numpy()

        if not hasattr(frame, "columns"):
            raise TypeError(f"frame must be a pandas or polars DataFrame, got {type(frame).__name__}")
        return cls.from_arrays(
            column("user", user),
            column("item", item),
            None if value is None else column("value", value),
            None if timestamp is None else column("timestamp", timestamp),
            duplicates=duplicates,
        )

    def with_features(
        self,
        *,
        user_features: Mapping[str, Any] | None = None,
        item_features: Mapping[str, Any] | None = None,
    ) -> Self:
        """The same interactions with these feature columns in place of the old ones.

        Parameters
        ----------
        user_features, item_features : mapping of str to array_like, or None
            One entry per user or item, in the order of `user_ids` or `item_ids`; None keeps what is there.

        Returns
        -------
        Interactions
            Shares its arrays with this one.
        """
        columns = {}
        for argument, given, kept, length in (
            ("user_features", user_features, self.user_features, self.n_users),
            ("item_features", item_features, self.item_features, self.n_items),
        ):
            columns[argument] = kept if given is None else {name: column_array(col) for name, col in given.items()}
            for name, column in columns[argument].items():
                if len(column) != length:
                    raise ValueError(f"{argument}[{name!r}] must have {length} entries, got {len(column)}")
        return self._replace(**columns)

    # ---- reading ------------------------------------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """Number of users, empty ones included."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """Number of items, those nobody used included."""
        return len(self.item_ids)

    @property
    def n_interactions(self) -> int:
        """Number of stored user-item pairs."""
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    def values_or_ones(self, dtype: type = np.float64) -> np.ndarray:
        """The values as one array.

        Parameters
        ----------
        dtype : type
            Floating type of the result.

        Returns
        -------
        ndarray of shape (n_interactions,)
            Ones where no values are stored.
        """
        if self.values is None:
            return np.ones(self.n_interactions, dtype=dtype)
        return np.ascontiguousarray(self.values, dtype=dtype)

    def interactions_per_user(self) -> np.ndarray:
        """Number of interactions of each user.

        Returns
        -------
        ndarray of shape (n_users,), int64
            In the order of `user_ids`.
        """
        return np.diff(self.indptr)

    def interactions_per_item(self) -> np.ndarray:
        """Number of interactions of each item.

        Returns
        -------
        ndarray of shape (n_items,), int64
            In the order of `item_ids`.
        """
        return np.bincount(self.indices, minlength=self.n_items).astype(np.int64)

    def user_index(self, ids: Iterable[Hashable] | np.ndarray) -> np.ndarray:
        """Rows of external user ids.

        Parameters
        ----------
        ids : array_like
            External ids.

        Returns
        -------
        ndarray of int64
            One row per id.

        Raises
        ------
        KeyError
            An id that is not among `user_ids`.
        """
        if self._user_index is None:
            self._user_index = IdIndex("user", self.user_ids)
        return self._user_index.rows(ids)

    def item_index(self, ids: Iterable[Hashable] | np.ndarray) -> np.ndarray:
        """Columns of external item ids.

        Parameters
        ----------
        ids : array_like
            External ids.

        Returns
        -------
        ndarray of int64
            One column per id.

        Raises
        ------
        KeyError
            An id that is not among `item_ids`.
        """
        if self._item_index is None:
            self._item_index = IdIndex("item", self.item_ids)
        return self._item_index.rows(ids)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """A SciPy matrix of users x items.

        Returns
        -------
        scipy.sparse.csr_matrix
            Its own copy; float32, or float64 where the values need it.
        """
        dtype = np.float32 if self.values is None else self.values.dtype
        matrix = scipy.sparse.csr_matrix(
            (self.values_or_ones(dtype).copy(), self.indices.copy(), self.indptr.copy()), shape=self.shape
        )
        matrix.has_sorted_indices = True
        return matrix

    # ---- selection ----------------------------------------------------------------------------------------------

    def binarize(self, threshold: float = 0) -> Self:
        """Keep the interactions whose value exceeds `threshold`, each with value 1.

        Parameters
        ----------
        threshold : float
            At least 0.

        Returns
        -------
        Interactions
            Same users and items, some of which may now be empty.
        """
        threshold = check_real("threshold", threshold, low=0.0)
        if self.values is None:
            return self if threshold < 1 else self._keep(np.zeros(self.n_interactions, dtype=bool))
        return self._keep(self.values > threshold)._replace(values=None)

    def positive(self) -> Self:
        """Drop explicit zeros: the interactions that count as implicit feedback, with their values.

        Returns
        -------
        Interactions
            This object where there is nothing to drop.
        """
        if self.values is None or bool((self.values > 0).all()):
            return self
        return self._keep(self.values > 0)

    def filter_core(self, *, min_interactions_per_user: int, min_interactions_per_item: int) -> Self:
        """Drop users and items with too few interactions, repeatedly, until all that remain have enough.

        Parameters
        ----------
        min_interactions_per_user, min_interactions_per_item : int
            At least 0; 0 keeps empty ones.

        Returns
        -------
        Interactions
            The largest such subset; it may be empty.
        """
        low_user = check_integer("min_interactions_per_user", min_interactions_per_user, low=0)
        low_item = check_integer("min_interactions_per_item", min_interactions_per_item, low=0)
        rows = np.repeat(np.arange(self.n_users), self.interactions_per_user())
        user_kept = np.ones(self.n_users, dtype=bool)
        item_kept = np.ones(self.n_items, dtype=bool)
        alive = np.ones(self.n_interactions, dtype=bool)
        while True:
            users = user_kept & (np.bincount(rows[alive], minlength=self.n_users) >= low_user)
            items = item_kept & (np.bincount(self.indices[alive], minlength=self.n_items) >= low_item)
            if (users == user_kept).all() and (items == item_kept).all():
                break
            user_kept, item_kept = users, items
            alive = user_kept[rows] & item_kept[self.indices]
        return self._keep(alive)._take_users(np.flatnonzero(user_kept))._take_items(np.flatnonzero(item_kept))

    def top_items(self, n: int) -> Self:
        """Keep the `n` items with the most interactions; ties go to the earlier item.

        Parameters
        ----------
        n : int
            At least 1; more than there are keeps all.

        Returns
        -------
        Interactions
            All users, also those left without an interaction; items in their old order.
        """
        n = check_integer("n", n, low=1)
        if n >= self.n_items:
            return self
        kept = np.sort(np.argsort(-self.interactions_per_item(), kind="stable")[:n])
        mask = np.zeros(self.n_items, dtype=bool)
        mask[kept] = True
        return self._keep(mask[self.indices])._take_items(kept)

    def select_users(self, rows: np.ndarray) -> Self:
        """Keep these users, in this order, each with its global id.

        Parameters
        ----------
        rows : array_like of int or bool
            Distinct row numbers, or a mask over all users.

        Returns
        -------
        Interactions
            All items.
        """
        rows = np.asarray(rows)
        if rows.dtype == bool:
            if rows.shape != (self.n_users,):
                raise ValueError(f"rows must be a mask of shape ({self.n_users},), got {rows.shape}")
            rows = np.flatnonzero(rows)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError(f"rows must be a one-dimensional array of row numbers, got {rows.dtype} {rows.shape}")
        rows = rows.astype(np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= self.n_users):
            raise ValueError(f"rows must lie in [0, {self.n_users}), got {rows.min()} to {rows.max()}")
        if len(np.unique(rows)) != len(rows):
            raise ValueError("rows must be distinct: one user stands for one person; see from_arrays to resample")
        return self._take_users(rows)

    def shard(self, n: int) -> list[Self]:
        """Split the users into `n` contiguous shards of nearly equal size.

        Parameters
        ----------
        n : int
            At least 1; shards beyond the number of users are empty.

        Returns
        -------
        list of Interactions
            In order; each has all items, and its users keep their global ids.
        """
        n = check_integer("n", n, low=1)
        edges = np.arange(n + 1) * self.n_users // n
        return [self._user_range(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def keep_interactions(self, mask: np.ndarray) -> Self:
        """Keep the interactions where `mask` is True; users and items stay.

        Parameters
        ----------
        mask : ndarray of shape (n_interactions,), bool
            In storage order: by user, then item.

        Returns
        -------
        Interactions
            Same shape.
        """
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.n_interactions,):
            raise ValueError(f"mask must be bool of shape ({self.n_interactions},), got {mask.dtype} {mask.shape}")
        return self._keep(mask)

    # ---- plumbing -----------------------------------------------------------------------------------------------

    def _replace(self, **changes) -> Self:
        fields = {
            name: getattr(self, name)
            for name in (
                "indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids",
                "user_features", "item_features",
            )
        }  # fmt: skip
        return type(self)(**(fields | changes))

    def _keep(self, mask: np.ndarray) -> Self:
        if mask.all():
            return self
        ends = np.concatenate([[0], np.cumsum(mask)])
        return self._replace(
            indptr=ends[self.indptr],
            indices=self.indices[mask],
            values=None if self.values is None else self.values[mask],
            timestamps=None if self.timestamps is None else self.timestamps[mask],
        )

    def _user_range(self, start: int, stop: int) -> Self:
        # Consecutive users share the parent's arrays: a shard costs no copy.
        low, high = int(self.indptr[start]), int(self.indptr[stop])
        return self._replace(
            indptr=self.indptr[start : stop + 1] - low,
            indices=self.indices[low:high],
            values=None if self.values is None else self.values[low:high],
            timestamps=None if self.timestamps is None else self.timestamps[low:high],
            user_ids=self.user_ids[start:stop],
            global_user_ids=self.global_user_ids[start:stop],
            user_features={name: column[start:stop] for name, column in self.user_features.items()},
        )

    def _take_users(self, rows: np.ndarray) -> Self:
        if len(rows) == self.n_users and (rows == np.arange(self.n_users)).all():
            return self
        lengths = self.interactions_per_user()[rows]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        where = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return self._replace(
            indptr=indptr,
            indices=self.indices[where],
            values=None if self.values is None else self.values[where],
            timestamps=None if self.timestamps is None else self.timestamps[where],
            user_ids=self.user_ids[rows],
            global_user_ids=self.global_user_ids[rows],
            user_features={name: column[rows] for name, column in self.user_features.items()},
        )

    def _take_items(self, columns: np.ndarray) -> Self:
        # The caller has dropped the interactions of all other items; ascending columns keep rows sorted.
        if len(columns) == self.n_items:
            return self
        renumber = np.full(self.n_items, -1, dtype=np.int32)
        renumber[columns] = np.arange(len(columns), dtype=np.int32)
        return self._replace(
            indices=renumber[self.indices],
            item_ids=self.item_ids[columns],
            item_features={name: column[columns] for name, column in self.item_features.items()},
        )

    def __repr__(self) -> str:
        kind = "" if self.values is None else " with values"
        return (
            f"<Interactions: {self.n_users:,} users x {self.n_items:,} items, {self.n_interactions:,} interactions{kind}>"
        )


def _frozen(array: np.ndarray, dtype: type | None = None) -> np.ndarray:
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
