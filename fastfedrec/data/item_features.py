"""What is publicly known of items, whatever form it has, as rows of unit vectors aligned with a list of items."""

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

#: What `ItemFeatures.of` takes: a frame, columns by their names, vectors, or the digest of a saved model's.
ItemFeaturesLike: TypeAlias = Any

_ITEM, _VECTORS = "item", "vectors"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class AlignedFeatures:
    """Features in the order of a list of items.

    Parameters
    ----------
    blocks : tuple of csr_array of shape (n_items, n_dimensions), float32
        One for each column; rows have norm 1, or are zeros where nothing is known.
    n_known : int
        Items of which anything is known.
    unlisted : ndarray
        Ids that have features and are none of the items.
    """

    blocks: tuple[Rows, ...]
    n_known: int
    unlisted: NDArray[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_known", check_integer("n_known", self.n_known, low=0))


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures:
    """Public features of items, a block of unit vectors for each column; made by `of`, and never changed.

    Parameters
    ----------
    names : tuple of str
        The columns.
    ids : ndarray or None
        Whose rows they are; None where they are in the order of the list of items.
    blocks : tuple of csr_array of shape (n_rows, n_dimensions), float32
        One for each column.  None at all where nothing but the digest was given: by a file, or to a node.
    digest : str
        64 hexadecimal digits, that no other features have.
    unaligned : mapping of str to ndarray
        Where there are no ids, the columns that may turn out to hold them.

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
        """Make unit vectors of what people have.

        Parameters
        ----------
        name : str
            The argument's name, for messages.
        given : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or ItemFeatures
            A frame of pandas, polars (also lazy) or pyarrow, or columns by their names.  The ids are a column `item`,
            or one with a usual name (``item_id``, ``movieId``, ``asin``), or the index of pandas under such a name;
            without ids rows are in the order of the list of items.  Every other column is a block:

            - text is labels, several of them joined by ``|``, where they come again in the column; where hardly one
              does (titles, descriptions), its words are hashed, and weigh more the rarer they are;
            - lists, tuples and sets are labels, or coordinates of a vector where they are fractions; flags are labels;
            - numbers and dates are taken by their rank among all, so that near ones are alike; numbers that stand for
              labels must be made text;
            - arrays of two dimensions, also sparse ones, are vectors of one's own.

            None and a null say that nothing is known.  An array of two dimensions, also one of SciPy's sparse ones, is
            one block of vectors.  A digest of 64 hexadecimal digits stands for features that are elsewhere.

        Returns
        -------
        ItemFeatures
            Checked.

        Raises
        ------
        TypeError, ValueError, KeyError
            What cannot be features; the column, the position and what to do are named.
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
            raise ValueError(f"{name} must have a row, got none")
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{name} must have columns of one length, got {lengths}")
        for block in blocks.values():
            for array in (block.data, block.indices, block.indptr):
                array.flags.writeable = False
        unaligned = _plain_columns(columns) if ids is None else {}
        return cls(tuple(blocks), ids, tuple(blocks.values()), _digest_of(ids, blocks), unaligned)

    def __repr__(self) -> str:
        return f"<ItemFeatures: digest {self.digest[:16]}>"  # the same of a digest alone: nodes of a run compare it

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nothing of it changes

    def align(self, name: str, item_ids: ArrayLike) -> AlignedFeatures:
        """The rows of some items, in their order.

        Parameters
        ----------
        name : str
            The argument's name, for messages.
        item_ids : array_like of shape (n_items,)
            Distinct.

        Returns
        -------
        AlignedFeatures
            Items without a row have zeros.

        Raises
        ------
        ValueError
            Rows without ids that are not as many as the items, or features that a saved model has not kept.
        KeyError
            None of the items has a row.
        TypeError
            Ids of another type than the items'.
        """
        items = axis_ids("item_ids", item_ids, None)
        if not self.blocks:
            raise ValueError(
                f"{name} are a digest alone, as model files keep it; give those with the digest {self.digest[:16]}... "
                f"again, with set_params({name}=...), or others, or None"
            )
        unlisted = np.empty(0, dtype=items.dtype)
        blocks = self.blocks
        if self.ids is None:
            if (n_rows := blocks[0].shape[0]) != len(items):
                raise ValueError(
                    f"{name} must have {len(items)} rows, one for each item in the order of item_ids, got {n_rows}; or "
                    f"give it a column {_ITEM!r} with the ids"
                )
            refuse_unnamed_ids(name, _ITEM, self.unaligned, items)
        else:
            called = f"{name}[{_ITEM!r}]"
            check_kinds(called, self.ids, items, of="the items' ids")
            rows = IdIndex(_ITEM, self.ids).find(items)
            if len(items) and (rows < 0).all():
                raise KeyError(
                    f"{called} has none of the {len(items)} items: it begins with {id_at(self.ids, 0)!r}, and item_ids "
                    f"with {id_at(items, 0)!r}; use the same ids"
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
    """The same whatever types hold the same."""
    named = ids if ids is None or ids.dtype.kind in "Mm" else ids.astype(object)
    rows = [[b.indptr.astype(np.int64), b.indices.astype(np.int64), b.data, list(b.shape)] for b in blocks.values()]
    return digests({"features": [named, list(blocks), rows]})["features"]


def _columns(name: str, given: Any) -> tuple[IdColumn | None, dict[str, tuple[str, Any]]]:
    """The ids, if there are any, and every other column with what messages call it."""
    if isinstance(given, Mapping) or is_frame(given):
        id_column, columns = split_ids(name, _ITEM, given)
        if odd := [column for column in columns if not isinstance(column, str)]:
            raise TypeError(f"{name} must have columns with names that are text, got {odd[0]!r}; rename it")
        if not columns:
            raise ValueError(f"{name} must have a column beside {_ITEM!r}, got none")
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
    """Copies of the columns that have a single value in each row."""
    plain = {}
    for column, (called, values) in columns.items():
        if not scipy.sparse.issparse(values) and getattr(values, "ndim", 1) == 1:
            with suppress(TypeError, ValueError):  # a missing entry, which is no id
                plain[column] = column_array(called, values).copy()
                plain[column].flags.writeable = False
    return plain


def _rows_of(block: Rows, rows: np.ndarray) -> Rows:
    """Some rows; -1 is one of zeros."""
    lengths = np.where(rows >= 0, np.diff(block.indptr)[rows], 0)
    chosen = block[rows[rows >= 0]]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(chosen.indptr.dtype)
    return scipy.sparse.csr_array((chosen.data, chosen.indices, indptr), shape=(len(rows), block.shape[1]))
