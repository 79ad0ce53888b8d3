"""Interactions: a checked, immutable users x items matrix in compressed rows, with external ids."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Self, TypeVar, overload

import numpy as np
import scipy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastfedrec.core.arrays import Column
from fastfedrec.core.html import html_card
from fastfedrec.core.immutable import Immutable
from fastfedrec.data._frames import read_rows
from fastfedrec.data._selections import FIELDS, Selections, unpickled
from fastfedrec.data.csr import check_columns, check_fields, check_item_count, own_array, own_columns, owned, picklable
from fastfedrec.data.ids import IdIndex, axis_ids, rows_on
from fastfedrec.data.merging import merge_duplicates
from fastfedrec.data.pairs import check_values, compact_values, drop_unlisted, in_order, sort_pairs
from fastfedrec.data.sparse import checked_csr, remedy_for
from fastfedrec.data.times import MISSING_TIMESTAMP, check_timestamps

__all__ = ["MISSING_TIMESTAMP", "Interactions"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Interactions(Selections, Immutable):
    """Users x items in compressed sparse rows, with external ids, values and (where known) timestamps.

    Make one with `from_arrays`, `from_scipy` or `from_dataframe`.  Its attributes are set once, and its arrays are
    read-only and its own: what the caller writes to later changes nothing here.  Rows are users; columns within a row
    are sorted and distinct.  Every selection (`filter_core`, `top_items`, `shard`, ...) returns a new object, keeps ids
    and features aligned, and carries each user's global id, which names that user's random streams.

    Parameters
    ----------
    indptr : array_like of shape (n_users + 1,), int
        Row starts: from 0, never falling, to the number of interactions.
    indices : array_like of shape (n_interactions,), int
        Item of each interaction, from 0, ascending within a row.
    values : array_like of shape (n_interactions,) or None
        float32 or float64, finite; None where every value is 1.
    timestamps : array_like of shape (n_interactions,), int, or None
        In whatever unit the source uses; `MISSING_TIMESTAMP` where one is not known.
    user_ids, item_ids : array_like of shape (n_users,) and (n_items,)
        External ids, distinct.
    global_user_ids : array_like of shape (n_users,), int
        The row each user had where the data were first built; distinct, for they name random streams.
    user_features, item_features : mapping of str to array_like
        Columns aligned with the users and items.
    catalogue : {"public", "data", "counts", "chosen"}
        Where the list of items comes from.  "public": from outside of the data, as the columns of a matrix and
        `item_ids` are.  "data": it is those that appear in the data.  "counts": it was chosen by how often each is
        used, exactly.  "chosen": by `fastfedrec.choose_items`, which a ledger accounts for.  Selections carry it along;
        guarantees do not cover "data" and "counts", and a ledger says so.

    Attributes
    ----------
    n_users, n_items, n_interactions : int
        Sizes.

    Raises
    ------
    TypeError, ValueError
        What no kernel may be given: the argument, the row, and what to do are named.

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
        stated = {name: value for name, value in locals().items() if name in FIELDS}
        self._take_fields(check_fields(stated))

    @classmethod
    def _trusted(cls, fields: Mapping[str, Any]) -> Self:
        # What was checked, or made of what was: it is not checked again.  No file and no pickle leads here.
        made = cls.__new__(cls)
        made._take_fields(fields)
        return made

    def _take_fields(self, fields: Mapping[str, Any]) -> None:
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
        """Build from one row per interaction.

        Ids of one comparable type are put in ascending order, others in order of first appearance; those of an axis
        that is given stay as they are.

        Parameters
        ----------
        users, items : array_like of shape (n,)
            External ids: any hashable; None and NaN are refused.
        values : array_like of shape (n,) or None
            Ratings or counts, finite (an explicit 0 is kept); None makes each row a count of 1.  Ratings may be below
            0; models of counts refuse them.
        timestamps : array_like of shape (n,) or None
            Kept beside their interaction.  Whole numbers of any unit are taken as they are; dates and times, in UTC
            where they name no zone, become numbers since 1970.  Entries may be missing (None, NaN, NaT, null); what
            needs an order refuses them.
        timestamp_unit : {"s", "ms", "us", "ns"}
            What dates and times become.  One that it would cut is refused.
        duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
            How several rows of a user-item pair become one.  None sums, and warns where `values` were given, because
            the sum of two ratings is no rating.  "first" and "last" go by the order of rows, "earliest" and "latest"
            by time; the pair has that row's timestamp, and else the latest.  Splits by time divide the rows.
        user_ids, item_ids : array_like or None
            All users, or the whole catalogue, distinct and in this order, with those of whom there is no row.  None:
            those that appear.  A list of items that is taken from the data is not covered by a guarantee; give a
            public one.
        unlisted : {"error", "drop"}
            What becomes of a row whose user or item is not in the list that was given.

        Returns
        -------
        Interactions
            Every user and item that appears, or that is listed.

        Raises
        ------
        ValueError
            Different lengths, a missing id, a value that is NaN or infinite, an id that is not listed; the
            row is named.

        Examples
        --------
        >>> from fastfedrec import Interactions
        >>> catalogue = ["tea", "milk", "bread"]
        >>> data = Interactions.from_arrays([1, 2, 1], ["tea", "tea", "bread"], item_ids=catalogue)
        >>> data.item_ids.tolist(), data.interactions_per_item().tolist(), data.catalogue
        (['tea', 'milk', 'bread'], [2, 0, 1], 'public')
        """
        given = {"users": user_ids, "items": item_ids}
        user_ids, user_rows = rows_on("users", users, user_ids)
        item_ids, item_rows = rows_on("items", items, item_ids)
        n = len(user_rows)
        if len(item_rows) != n:
            raise ValueError(f"items must have one entry per user entry ({n}), got {len(item_rows)}")
        data = None if values is None else check_values("values", values, n)
        times = None if timestamps is None else check_timestamps(timestamps, n, unit=timestamp_unit)
        if any(listed is not None for listed in given.values()):
            kept, rows, ids = drop_unlisted(
                given, {"users": user_rows, "items": item_rows}, {"users": user_ids, "items": item_ids}, items, unlisted
            )
            user_rows, item_rows, user_ids, item_ids = rows["users"], rows["items"], ids["users"], ids["items"]
            if kept is not None:
                data, times = (None if column is None else column[kept] for column in (data, times))
        check_item_count(len(item_ids))
        item_rows = item_rows.astype(np.int32, copy=False)
        indptr, order = sort_pairs(user_rows, item_rows, len(user_ids), len(item_ids))
        del user_rows  # told by indptr from here on
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
                "catalogue": "data" if given["items"] is None else "public",
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
        """Build from a SciPy sparse matrix or array of users x items.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array of shape (n_users, n_items)
            Any format.  Duplicate entries are summed; empty rows and explicit zeros are kept, but for zeros of BSR and
            DIA, which fill blocks and diagonals.
        user_ids, item_ids : array_like or None
            External ids, distinct; None numbers them from 0.

        Returns
        -------
        Interactions
            The same shape as `matrix`.
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
        user: str = "user",
        item: str = "item",
        value: str | None = None,
        timestamp: str | None = None,
        timestamp_unit: str = "ns",
        duplicates: str | None = None,
        user_ids: Column | None = None,
        item_ids: Column | None = None,
        unlisted: str = "error",
    ) -> Self:
        """Build from a table of pandas, polars or pyarrow with one row per interaction.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, polars.LazyFrame or pyarrow.Table
            Or any other table with `__arrow_c_stream__`, as of DuckDB, Ibis, narwhals or cuDF, which pyarrow or polars
            reads.  Of a lazy frame only these columns are read.
        user, item : str
            Names of the id columns.
        value, timestamp : str or None
            Names of the value and timestamp columns, if any.  Values are there in every row; timestamps may be missing.
        timestamp_unit : {"s", "ms", "us", "ns"}
            As in `from_arrays`.
        duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
            As in `from_arrays`.
        user_ids, item_ids : array_like or None
            As in `from_arrays`.
        unlisted : {"error", "drop"}
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
        wanted = {"user": user, "item": item, "value": value, "timestamp": timestamp}
        return cls.from_arrays(
            **read_rows(frame, wanted, timestamp_unit),
            duplicates=duplicates,
            user_ids=user_ids,
            item_ids=item_ids,
            unlisted=unlisted,
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
        user_features, item_features : mapping of str to array_like, frame, or None
            A row for each user or item; None keeps the present columns.  Rows are aligned by a column of ids (``user``
            or ``item``, or a usual name such as ``movieId``) or an index of pandas of that name, else by position.

        Returns
        -------
        Interactions
            Shares its arrays with this one.
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
        """The values as one array.

        Parameters
        ----------
        dtype : dtype
            Floating type of the result.

        Returns
        -------
        ndarray of shape (n_interactions,)
            Ones where no values are stored.
        """
        if self.values is None:
            return np.ones(self.n_interactions, dtype=dtype)
        return np.ascontiguousarray(self.values, dtype=dtype)

    def user_index(self, ids: Iterable[Hashable] | Column) -> NDArray[np.int64]:
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
        return self._index("user").rows(ids)

    def item_index(self, ids: Iterable[Hashable] | Column) -> NDArray[np.int64]:
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
        return self._index("item").rows(ids)

    def _index(self, axis: str) -> IdIndex:
        """Rows by id, made when it is first asked for."""
        if axis not in self._indexes:
            self._indexes[axis] = IdIndex(axis, getattr(self, f"{axis}_ids"))
        return self._indexes[axis]

    def to_scipy(self) -> "scipy.sparse.csr_matrix":
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

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: an unpickled array is writable, and may hold anything.
        return unpickled, (type(self), tuple(map(picklable, self._fields().values())), self._repeats)

    def __repr__(self) -> str:
        kind = "" if self.values is None else " with values"
        sizes = f"{self.n_users:,} users x {self.n_items:,} items, {self.n_interactions:,} interactions"
        return f"<Interactions: {sizes}{kind}>"

    def _repr_html_(self) -> str:
        cells = max(self.n_users * self.n_items, 1)
        facts = {
            "users": f"{self.n_users:,}",
            "items": f"{self.n_items:,} (catalogue: {self.catalogue})",
            "interactions": f"{self.n_interactions:,}, {self.n_interactions / cells:.2%} of all",
            "values": "none: each counts 1" if self.values is None else self.values.dtype,
            "timestamps": "none" if self.timestamps is None else "with each interaction",
            "user features": ", ".join(map(str, self.user_features)) or "none",
            "item features": ", ".join(map(str, self.item_features)) or "none",
        }
        return html_card("Interactions", facts)
