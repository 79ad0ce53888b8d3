"""Public features of items, encoded as unit vectors and aligned with a list of items."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.check import check_integer
from fastfedrec.data._feature_columns import Rows, unit_rows
from fastfedrec.data._feature_ids import IdColumn, refuse_unnamed_ids, split_ids
from fastfedrec.data._frames import is_frame
from fastfedrec.data.digest import digests
from fastfedrec.data.ids import IdIndex, axis_ids, check_kinds, column_array, id_at

__all__ = ["ItemFeatures", "ItemFeaturesLike"]

#: Argument of `ItemFeatures.of`: a frame, columns by name, vectors, or the digest of a saved model's features.
ItemFeaturesLike: TypeAlias = Any

_ITEM, _VECTORS = "item", "vectors"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class AlignedFeatures:
    """Features in the order of a list of items.

    Parameters
    ----------
    blocks : tuple of csr_array of shape (n_items, n_dimensions), float32
        One block per column.  A row has L2 norm 1, or is zero if the column has no entry for the item.
    n_known : int
        Number of items with at least one nonzero row.
    unlisted : ndarray
        Ids with features that are not in the list of items.
    """

    blocks: tuple[Rows, ...]
    n_known: int
    unlisted: NDArray[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_known", check_integer("n_known", self.n_known, low=0))


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures:
    """Immutable public features of items, with a block of unit vectors for each column; built by `of`.

    Parameters
    ----------
    names : tuple of str
        Names of the columns.
    ids : ndarray or None
        Item id of each row; None if the rows are in the order of the list of items.
    blocks : tuple of csr_array of shape (n_rows, n_dimensions), float32
        One block per column.  The tuple is empty if only the digest is known, as in a saved model or on a node.
    digest : str
        Digest of the features: 64 hexadecimal digits that identify them.
    unaligned : mapping of str to ndarray
        Columns that may contain the ids, for features without ids.

    Examples
    --------
    >>> from fastfedrec.data.item_features import ItemFeatures
    >>> table = {"item": [7, 8, 9], "genres": ["war|drama", "drama", "war"], "year": [1950, None, 1990]}
    >>> features = ItemFeatures.of("item_features", table)
    >>> features.names
    ('genres', 'year')
    >>> aligned = features.align("item_features", [9, 7, 5])
    >>> aligned.blocks[0].toarray().round(1)
    array([[0. , 1. ],
           [0.7, 0.7],
           [0. , 0. ]], dtype=float32)
    >>> aligned.n_known, aligned.unlisted
    (2, array([8]))
    """

    names: tuple[str, ...]
    ids: NDArray[Any] | None
    blocks: tuple[Rows, ...]
    digest: str
    unaligned: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, given: ItemFeaturesLike) -> Self:
        """Encode a table or vectors of item features as unit vectors.

        Parameters
        ----------
        name : str
            Name of the argument in error messages.
        given : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or ItemFeatures
            Frame of pandas, polars (also lazy) or pyarrow, or columns by name.  The ids are in a column `item`, in a
            column with a usual name (``item_id``, ``movieId``, ``asin``), or in a pandas index with such a name.
            Without ids, rows are in the order of the list of items.  Every other column is a block:

            - text holds labels, joined by ``|`` if an entry has several.  If almost all of them are distinct (titles,
              descriptions), the words of the text are hashed instead, and rarer words have larger weights;
            - lists, tuples and sets hold labels, or coordinates of a vector if they are fractions; flags are labels;
            - numbers and dates are encoded by their rank in the column, so that close ranks are similar; numbers that
              are labels must be converted to text;
            - arrays of two dimensions, dense or sparse, are vectors.

            None and null mark a missing entry.  An array of two dimensions, NumPy or SciPy sparse, is one block of
            vectors.  A digest of 64 hexadecimal digits refers to features that are stored elsewhere.

        Returns
        -------
        ItemFeatures
            Checked features.

        Raises
        ------
        TypeError, ValueError, KeyError
            Invalid features.  The message names the column, the position and a remedy.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str) and _DIGEST.fullmatch(given):
            return cls((), None, (), given)
        id_column, columns = _columns(name, given)
        blocks = {column: unit_rows(label, values) for column, (label, values) in columns.items()}
        lengths = {column: block.shape[0] for column, block in blocks.items()}
        ids = None
        if id_column is not None:
            ids = axis_ids(id_column.called, id_column.ids, None)
            lengths = {_ITEM: len(ids)} | lengths
        if 0 in lengths.values():
            raise ValueError(f"{name} must have at least one row, got none; pass None for no features")
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{name} must have columns of equal length, got {lengths}; give each one entry per item")
        # `ItemFeatures` is immutable, so its arrays are read-only.
        for block in blocks.values():
            for array in (block.data, block.indices, block.indptr):
                array.flags.writeable = False
        unaligned = _plain_columns(columns) if ids is None else {}
        return cls(tuple(blocks), ids, tuple(blocks.values()), _digest_of(ids, blocks), unaligned)

    def __repr__(self) -> str:
        # Nodes of a run compare this text, so it is the same for features that are known by their digest only.
        return f"<ItemFeatures: digest {self.digest[:16]}>"

    def __copy__(self) -> Self:
        return self  # the object is immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def align(self, name: str, item_ids: ArrayLike) -> AlignedFeatures:
        """Return the rows of a list of items, in its order.

        Parameters
        ----------
        name : str
            Name of the argument in error messages.
        item_ids : array_like of shape (n_items,)
            Distinct ids of the items.

        Returns
        -------
        AlignedFeatures
            Aligned features; items without a row have zeros.

        Raises
        ------
        ValueError
            Rows without ids that differ in number from the items, or features that are known by their digest only.
        KeyError
            None of the items has a row.
        TypeError
            Ids of a type that differs from the items' type.
        """
        items = axis_ids("item_ids", item_ids, None)
        if not self.blocks:
            raise ValueError(
                f"{name} must hold features, got only the digest {self.digest[:16]}..., because a saved model contains "
                f"no features; pass the features, others, or None with set_params({name}=...)"
            )
        unlisted = np.empty(0, dtype=items.dtype)
        blocks = self.blocks
        if self.ids is None:
            if (n_rows := blocks[0].shape[0]) != len(items):
                raise ValueError(
                    f"{name} must have {len(items)} rows, one for each item in the order of item_ids, got {n_rows}; "
                    f"add a column {_ITEM!r} with the ids to align rows by id"
                )
            # A column that looks like ids in another order means that the rows would be misaligned.
            refuse_unnamed_ids(name, _ITEM, self.unaligned, items)
        else:
            called = f"{name}[{_ITEM!r}]"
            check_kinds(called, self.ids, items, of="the items' ids")
            rows = IdIndex(_ITEM, self.ids).find(items)
            if len(items) and (rows < 0).all():
                raise KeyError(
                    f"{called} must contain some of the {len(items)} items, got none: its first id is "
                    f"{id_at(self.ids, 0)!r}, and the first of item_ids is {id_at(items, 0)!r}; use the same ids"
                )
            blocks = tuple(_rows_of(block, rows) for block in blocks)
            is_listed = np.zeros(len(self.ids), dtype=bool)
            is_listed[rows[rows >= 0]] = True
            unlisted = self.ids[~is_listed]
        known = np.zeros(len(items), dtype=bool)
        for block in blocks:
            known |= np.diff(block.indptr) > 0
        return AlignedFeatures(blocks, int(known.sum()), unlisted)


def _digest_of(ids: np.ndarray | None, blocks: Mapping[str, Rows]) -> str:
    """Return a digest that depends on the contents only, not on their dtypes."""
    # Objects give equal digests for equal ids of different integer or string dtypes.
    named = ids if ids is None or ids.dtype.kind in "Mm" else ids.astype(object)
    rows = [[b.indptr.astype(np.int64), b.indices.astype(np.int64), b.data, list(b.shape)] for b in blocks.values()]
    return digests({"features": [named, list(blocks), rows]})["features"]


def _columns(name: str, given: Any) -> tuple[IdColumn | None, dict[str, tuple[str, Any]]]:
    """Return the column of ids or None, and every other column with its name in error messages."""
    if isinstance(given, Mapping) or is_frame(given):
        id_column, columns = split_ids(name, _ITEM, given)
        if odd := [column for column in columns if not isinstance(column, str)]:
            raise TypeError(f"{name} must have column names that are text, got {odd[0]!r}; rename the column")
        if not columns:
            raise ValueError(f"{name} must have a column other than {_ITEM!r}, got none; add a column of features")
        return id_column, {column: (f"{name}[{column!r}]", values) for column, values in columns.items()}
    is_array = scipy.sparse.issparse(given) or hasattr(given, "__array__") or hasattr(given, "__dlpack__")
    if is_array and getattr(given, "ndim", 2) == 2:
        return None, {_VECTORS: (name, given)}
    shape = f" of shape {given.shape}" if hasattr(given, "shape") else ""
    raise TypeError(
        f"{name} must be a frame, a mapping of names to columns, or an array of n_items x n_dimensions, got "
        f"{type(given).__name__}{shape}; name a column as {{'genres': column}}"
    )


def _plain_columns(columns: Mapping[str, tuple[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return copies of the columns with a single value in each row."""
    plain = {}
    for column, (called, values) in columns.items():
        if not scipy.sparse.issparse(values) and getattr(values, "ndim", 1) == 1:
            with suppress(TypeError, ValueError):  # a missing entry cannot be an id
                plain[column] = column_array(called, values).copy()
                plain[column].flags.writeable = False
    return plain


def _rows_of(block: Rows, rows: np.ndarray) -> Rows:
    """Return rows of a block by number, with a row of zeros for -1."""
    lengths = np.where(rows >= 0, np.diff(block.indptr)[rows], 0)
    chosen = block[rows[rows >= 0]]
    # Missing rows have length 0, so the new `indptr` only needs the lengths.
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(chosen.indptr.dtype)
    return scipy.sparse.csr_array((chosen.data, chosen.indices, indptr), shape=(len(rows), block.shape[1]))
