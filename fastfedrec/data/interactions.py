"""The class `Interactions`: a checked, immutable user-item matrix in compressed rows, with external ids."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Self, TypeVar, overload

import numpy as np
import scipy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastfedrec.core.arrays import Column
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.immutable import Immutable
from fastfedrec.data._frames import head, read_rows, to_dataframe, to_frame, with_noted_ids
from fastfedrec.data._selections import FIELDS, Selections, unpickled
from fastfedrec.data.csr import check_columns, check_fields, check_item_count, own_array, own_columns, owned, picklable
from fastfedrec.data.ids import IdIndex, axis_ids, rows_on
from fastfedrec.data.merging import merge_duplicates
from fastfedrec.data.pairs import check_values, compact_values, drop_unlisted, in_order, sort_pairs
from fastfedrec.data.sparse import checked_csr, remedy_for
from fastfedrec.data.times import MISSING_TIMESTAMP, check_timestamps

__all__ = ["MISSING_TIMESTAMP", "Interactions"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@explains_calls
class Interactions(Selections, Immutable):
    """Immutable user-item matrix in compressed sparse rows, with external ids, values and optional timestamps.

    Build an object with `from_arrays`, `from_scipy` or `from_dataframe`.  Its attributes and arrays are read-only, and
    later changes of the caller's arrays do not affect it.  Rows are users; columns within a row are sorted and
    distinct.  Every selection (`filter_core`, `top_items`, `shard`, ...) returns a new object with aligned ids and
    features.  It keeps each user's global id, which names that user's random streams.

    Parameters
    ----------
    indptr : array_like of shape (n_users + 1,), int
        Start of each row in `indices`: the first is 0, the last is the number of interactions, and none decreases.
    indices : array_like of shape (n_interactions,), int
        Item number of each interaction, from 0, ascending within a row.
    values : array_like of shape (n_interactions,) or None
        Value of each interaction, float32 or float64, finite.  None means that every value is 1.
    timestamps : array_like of shape (n_interactions,), int, or None
        Timestamp of each interaction, in any unit; `MISSING_TIMESTAMP` marks an unknown one.
    user_ids, item_ids : array_like of shape (n_users,) and (n_items,)
        Distinct external ids.
    global_user_ids : array_like of shape (n_users,), int
        Row of each user in the data that were built first.  They are distinct, because they name random streams.
    user_features, item_features : mapping of str to array_like
        Columns aligned with the users and items.
    catalogue : {"public", "data", "counts", "chosen"}
        Source of the list of items, which selections keep.  "public": it does not depend on the data; the columns of a
        matrix and `item_ids` count as public.  "data": it holds the items that appear in the data.  "counts": it was
        selected by exact numbers of interactions.  "chosen": `fastfedrec.choose_items` selected it, and a ledger
        accounts for that.  Guarantees do not cover "data" and "counts", and a ledger states this.

    Attributes
    ----------
    n_users, n_items, n_interactions : int
        Number of users, of items and of stored user-item pairs.

    Raises
    ------
    TypeError, ValueError
        An argument of a wrong type, shape or value.  The message names the argument, the row and a remedy.

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
        indptr: ArrayLike,
        indices: ArrayLike,
        values: ArrayLike | None,
        timestamps: ArrayLike | None,
        user_ids: ArrayLike,
        item_ids: ArrayLike,
        global_user_ids: ArrayLike,
        user_features: Mapping[str, np.ndarray] | None = None,
        item_features: Mapping[str, np.ndarray] | None = None,
        catalogue: str = "public",
    ):
        fields = {name: value for name, value in locals().items() if name in FIELDS}
        self._set_fields(check_fields(fields))

    @classmethod
    def _trusted(cls, fields: Mapping[str, Any]) -> Self:
        # The fields are already checked or derived from checked ones.  Fields from files and pickles are checked first.
        interactions = cls.__new__(cls)
        interactions._set_fields(fields)
        return interactions

    def _set_fields(self, fields: Mapping[str, Any]) -> None:
        self.indptr = own_array(fields["indptr"], np.int64)
        self.indices = own_array(fields["indices"], np.int32)
        self.values = None if fields["values"] is None else own_array(fields["values"])
        self.timestamps = None if fields["timestamps"] is None else own_array(fields["timestamps"], np.int64)
        self.user_ids = own_array(fields["user_ids"])
        self.item_ids = own_array(fields["item_ids"])
        self.global_user_ids = own_array(fields["global_user_ids"], np.uint64)
        self.user_features = own_columns(fields["user_features"])
        self.item_features = own_columns(fields["item_features"])
        self._catalogue: str = fields["catalogue"]
        self._repeats = fields.get("repeats")
        self._indexes: dict[str, IdIndex] = {}

    # ---- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        users: Column,
        items: Column,
        values: Column | None = None,
        timestamps: Column | None = None,
        *,
        timestamp_unit: str = "ns",
        duplicates: str | None = None,
        user_ids: Column | None = None,
        item_ids: Column | None = None,
        unlisted: str = "error",
    ) -> Self:
        """Build interactions from arrays with one entry per row.

        Ids of one comparable type are sorted in ascending order; other ids keep the order of their first appearance.
        An explicit list `user_ids` or `item_ids` keeps its order.

        Parameters
        ----------
        users, items : array_like of shape (n,)
            External ids of any hashable type; None and NaN raise an error.
        values : array_like of shape (n,) or None
            Finite ratings or counts; an explicit 0 is stored.  None gives each row a count of 1.  Ratings may be
            negative; models of counts reject negative values.
        timestamps : array_like of shape (n,) or None
            Timestamp of each row.  Whole numbers of any unit are stored unchanged.  Dates, times and text of ISO 8601,
            in UTC unless they have a time zone, become numbers since 1970.  Entries may be missing (None, NaN, NaT,
            null); methods that need an order in time reject missing ones.
        timestamp_unit : {"s", "ms", "us", "ns"}
            Unit into which dates and times are converted.  A time that the unit would truncate raises an error.
        duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
            Rule that merges several rows of a user-item pair.  None sums them, and warns if `values` are given, because
            the sum of two ratings is not a rating.  "first" and "last" follow the order of rows, "earliest" and
            "latest" follow the timestamps.  With these four the pair has the timestamp of the selected row, otherwise
            the latest timestamp.  Splits by time divide the original rows.
        user_ids, item_ids : array_like or None
            Complete list of users, or the whole catalogue, distinct and in this order; it may list ids without a row.
            None lists the ids that appear.  No guarantee covers a list of items that is taken from the data, so give a
            public list.
        unlisted : {"error", "drop"}
            Treatment of a row with a user or an item that is missing from a given list.

        Returns
        -------
        Interactions
            Every user and item that appears or is listed.

        Raises
        ------
        ValueError
            Different lengths, a missing or unlisted id, or a value that is not finite.  The message names the row.

        Examples
        --------
        >>> from fastfedrec import Interactions
        >>> catalogue = ["tea", "milk", "bread"]
        >>> data = Interactions.from_arrays([1, 2, 1], ["tea", "tea", "bread"], item_ids=catalogue)
        >>> data.item_ids.tolist(), data.interactions_per_item().tolist(), data.catalogue
        (['tea', 'milk', 'bread'], [2, 0, 1], 'public')
        """
        listed_ids = {"users": user_ids, "items": item_ids}
        user_ids, user_rows = rows_on("users", users, user_ids)
        item_ids, item_rows = rows_on("items", items, item_ids)
        n = len(user_rows)
        if len(item_rows) != n:
            raise ValueError(f"items must have the length of users ({n}), got {len(item_rows)}; pass one item per user")
        data = None if values is None else check_values("values", values, n)
        times = None if timestamps is None else check_timestamps(timestamps, n, unit=timestamp_unit)
        if any(listed is not None for listed in listed_ids.values()):
            rows, ids = {"users": user_rows, "items": item_rows}, {"users": user_ids, "items": item_ids}
            mask, rows, ids = drop_unlisted(listed_ids, rows, ids, items, unlisted)
            user_rows, item_rows, user_ids, item_ids = rows["users"], rows["items"], ids["users"], ids["items"]
            if mask is not None:
                data, times = (None if column is None else column[mask] for column in (data, times))
        check_item_count(len(item_ids))
        item_rows = item_rows.astype(np.int32, copy=False)
        indptr, order = sort_pairs(user_rows, item_rows, len(user_ids), len(item_ids))
        # `indptr` holds the users of the sorted rows; deleting large arrays early lowers the peak of memory.
        del user_rows
        if order is not None:
            item_rows = in_order(item_rows, order)
            data = None if data is None else owned(in_order(data, order))
            times = None if times is None else in_order(times, order)
        times = None if times is None else times.astype(np.int64, copy=order is None)
        del order
        indptr, item_rows, data, times, repeats = merge_duplicates(
            indptr, item_rows, data, times, duplicates, user_ids, item_ids
        )
        return cls._trusted(
            {
                "indptr": owned(indptr),
                "indices": owned(item_rows),
                "values": compact_values(data),
                "timestamps": None if times is None else owned(times),
                "user_ids": user_ids,
                "item_ids": item_ids,
                "global_user_ids": np.arange(len(user_ids), dtype=np.uint64),
                "user_features": {},
                "item_features": {},
                "catalogue": "data" if listed_ids["items"] is None else "public",
                "repeats": repeats,
            }
        )

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        user_ids: Column | None = None,
        item_ids: Column | None = None,
    ) -> Self:
        """Build interactions from a SciPy sparse matrix or array of users x items.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array of shape (n_users, n_items)
            Matrix in any format.  Duplicate entries are summed.  Empty rows and explicit zeros are stored, except zeros
            of BSR and DIA, which fill blocks and diagonals.
        user_ids, item_ids : array_like or None
            Distinct external ids; None numbers them from 0.

        Returns
        -------
        Interactions
            Interactions with the shape of `matrix`.
        """
        if not scipy.sparse.issparse(matrix):
            raise TypeError(f"matrix must be a SciPy sparse matrix, got {type(matrix).__name__}; {remedy_for(matrix)}")
        return cls._of_matrix("matrix", matrix, user_ids, item_ids)

    @classmethod
    def _of_matrix(cls, name: str, matrix: Any, user_ids: Any, item_ids: Any) -> Self:
        if matrix.ndim != 2:
            raise ValueError(f"{name} must have 2 dimensions, got shape {matrix.shape}")
        n_users, n_items = matrix.shape
        check_item_count(n_items)
        indptr, indices, data = checked_csr(name, matrix)
        return cls(
            owned(indptr), owned(indices), compact_values(check_values(f"{name}.data", data, len(data))), None,
            axis_ids("user_ids", user_ids, n_users), axis_ids("item_ids", item_ids, n_items),
            np.arange(n_users, dtype=np.uint64),
        )  # fmt: skip

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        user: str | None = None,
        item: str | None = None,
        value: str | None = None,
        timestamp: str | None = None,
        timestamp_unit: str = "ns",
        duplicates: str | None = None,
        user_ids: Column | None = None,
        item_ids: Column | None = None,
        unlisted: str = "error",
    ) -> Self:
        """Build interactions from a table of pandas, polars or pyarrow with one row per interaction.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, polars.LazyFrame or pyarrow.Table
            Table, or any other object with `__arrow_c_stream__` (DuckDB, Ibis, narwhals, cuDF), which pyarrow or polars
            reads.  Only these columns of a lazy frame are read.
        user, item : str or None
            Names of the id columns.  If one is None, the column is recognized by its usual name, such as ``userId`` or
            ``movie_id``, as in `fastfedrec.datasets.load_table`.
        value, timestamp : str or None
            Names of the value and timestamp columns.  None reads no such column, unless both `user` and `item` are None
            and a column has a usual name.  Every row needs a value; timestamps may be missing.
        timestamp_unit : {"s", "ms", "us", "ns"}
            Unit into which dates and times are converted, see `from_arrays`.
        duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
            Rule that merges several rows of a user-item pair, see `from_arrays`.
        user_ids, item_ids : array_like or None
            Complete list of users, or the whole catalogue, see `from_arrays`.
        unlisted : {"error", "drop"}
            Treatment of a row with an unlisted id, see `from_arrays`.

        Returns
        -------
        Interactions
            Every user and item that appears or is listed.

        Raises
        ------
        KeyError
            A missing column, or several columns with usual names of a role.  The message lists the columns.

        Examples
        --------
        >>> import polars
        >>> from fastfedrec import Interactions
        >>> frame = polars.DataFrame({"userId": [1, 1], "movieId": [7, 9], "when": ["2024-09-12", "2024-09-13"]})
        >>> Interactions.from_dataframe(frame, timestamp="when", timestamp_unit="s").timestamps.tolist()
        [1726099200, 1726185600]
        """
        columns = {"user": user, "item": item, "value": value, "timestamp": timestamp}
        rows = read_rows(frame, columns, timestamp_unit)
        rows |= {"user_ids": user_ids, "item_ids": item_ids, "unlisted": unlisted}
        return with_noted_ids(cls.from_arrays(**rows, duplicates=duplicates))

    def with_features(
        self,
        *,
        user_features: Mapping[str, Any] | None = None,
        item_features: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the same interactions with other feature columns.

        Parameters
        ----------
        user_features, item_features : mapping of str to array_like, frame, or None
            One row for each user or item; None keeps the present columns.  A column of ids (``user`` or ``item``, or a
            usual name such as ``movieId``) or a pandas index of that name aligns the rows.  Without ids, rows are
            aligned by position.

        Returns
        -------
        Interactions
            Interactions that share their arrays with this object.
        """
        changes = {}
        if user_features is not None:
            changes["user_features"] = check_columns("user_features", user_features, self.user_ids)
        if item_features is not None:
            changes["item_features"] = check_columns("item_features", item_features, self.item_ids)
        return self._replace(**changes)

    # ---- reading ------------------------------------------------------------------------------------------------

    @overload
    def values_or_ones(self) -> NDArray[np.float64]: ...

    @overload
    def values_or_ones(self, dtype: type[_Scalar]) -> NDArray[_Scalar]: ...

    @overload
    def values_or_ones(self, dtype: DTypeLike) -> NDArray[Any]: ...

    def values_or_ones(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return the values as one array.

        Parameters
        ----------
        dtype : dtype
            Floating type of the result.

        Returns
        -------
        ndarray of shape (n_interactions,)
            Stored values, or ones if no values are stored.
        """
        if self.values is None:
            return np.ones(self.n_interactions, dtype=dtype)
        return np.ascontiguousarray(self.values, dtype=dtype)

    def user_index(self, ids: Iterable[Hashable] | Column) -> NDArray[np.int64]:
        """Return the row numbers of external user ids.

        Parameters
        ----------
        ids : array_like
            External user ids.

        Returns
        -------
        ndarray of int64
            Row number of each id.

        Raises
        ------
        KeyError
            An id that `user_ids` does not contain.
        """
        return self._index("user").rows(ids)

    def item_index(self, ids: Iterable[Hashable] | Column) -> NDArray[np.int64]:
        """Return the column numbers of external item ids.

        Parameters
        ----------
        ids : array_like
            External item ids.

        Returns
        -------
        ndarray of int64
            Column number of each id.

        Raises
        ------
        KeyError
            An id that `item_ids` does not contain.
        """
        return self._index("item").rows(ids)

    def _index(self, axis: str) -> IdIndex:
        """Return the lookup table of an axis, which is built at its first use."""
        if axis not in self._indexes:
            self._indexes[axis] = IdIndex(axis, getattr(self, f"{axis}_ids"))
        return self._indexes[axis]

    def to_scipy(self) -> "scipy.sparse.csr_matrix":
        """Return a SciPy matrix of users x items.

        Returns
        -------
        scipy.sparse.csr_matrix
            Copy of the data in float32, or in float64 if float32 cannot represent the values.
        """
        dtype = np.float32 if self.values is None else self.values.dtype
        matrix = scipy.sparse.csr_matrix(
            (self.values_or_ones(dtype).copy(), self.indices.copy(), self.indptr.copy()), shape=self.shape
        )
        matrix.has_sorted_indices = True
        return matrix

    to_frame = to_frame
    head = head
    to_dataframe = to_dataframe

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writable and may hold anything, so they pass the checks of the constructor.
        return unpickled, (type(self), tuple(map(picklable, self._fields().values())), self._repeats)

    def __repr__(self) -> str:
        kind = "" if self.values is None else " with values"
        sizes = f"{self.n_users:,} users x {self.n_items:,} items, {self.n_interactions:,} interactions"
        return f"<Interactions: {sizes}{kind}>"
