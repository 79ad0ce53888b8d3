"""Side features of users, items and single interactions, as rows of tables of embeddings."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import distinct
from fastfedrec.core.check import check_flag, check_integer
from fastfedrec.data._frames import columns_by_name
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.csr import Remade, check_named_rows, own_array
from fastfedrec.data.ids import IdIndex, axis_ids, column_array, encode_ids
from fastfedrec.data.interactions import Interactions

__all__ = ["FeatureTable", "Features"]

_MULTI_HOT = tuple, list, set, frozenset
_ITEM_ID = "item id"


@dataclass(frozen=True)
class FeatureTable(Remade):
    """The values of some features, for each of some entries (users, items or contexts).

    Parameters
    ----------
    names : tuple of str
        The features.
    vocabularies : tuple of ndarray
        The distinct values of each.
    n_entries : int
        Users, items or contexts.
    indptr : ndarray of shape (n_entries * n_features + 1,), int64
        Where the values of feature f of entry e begin: at ``indptr[e * n_features + f]``.
    indices : ndarray of int32
        Values by number, those of the first feature first; ascending within an entry's feature.
    """

    names: tuple[str, ...]
    vocabularies: tuple[NDArray[Any], ...]
    n_entries: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    def __post_init__(self) -> None:
        n_rows = check_integer("table.n_entries", self.n_entries, low=0) * self.n_features
        if len(self.vocabularies) != self.n_features:
            raise ValueError(f"table.vocabularies must be {self.n_features}, as names, got {len(self.vocabularies)}")
        fields = "indptr", "indices"
        rows = check_named_rows("table", self.indptr, self.indices, n_rows, self.n_values, fields=fields, rising=True)
        for name, array in zip(fields, rows, strict=True):
            object.__setattr__(self, name, own_array(array))
        object.__setattr__(self, "vocabularies", tuple(map(own_array, self.vocabularies)))

    @property
    def n_features(self) -> int:
        """Number of features.

        Returns
        -------
        int
            0 where nothing is known of an entry.
        """
        return len(self.names)

    @property
    def n_values(self) -> int:
        """Values of all features together: the rows of a table of embeddings.

        Returns
        -------
        int
            The sum of the vocabularies' lengths.
        """
        return sum(map(len, self.vocabularies))


@dataclass(frozen=True)
class Features:
    """Which features users, items and single interactions have; made by `from_interactions`.

    A feature is categorical (one value an entry) or multi-hot (any number: its embedding is the mean of its values',
    zeros where there are none).

    Parameters
    ----------
    user : FeatureTable
        One entry a user.
    item : FeatureTable
        One entry an item; the item's id is its first feature, unless it was left out.
    context : FeatureTable
        One entry for each row of a log of interactions; no features where there is no log.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.data.features import Features
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "b"])
    >>> data = data.with_features(
    ...     user_features={"age": [30, 50]}, item_features={"genres": [("drama",), ("drama", "war")]}
    ... )
    >>> features = Features.from_interactions(data, user=["age"], item=["genres"])
    >>> features.item.names, features.item.indices
    (('item id', 'genres'), array([0, 2, 1, 2, 3], dtype=int32))
    >>> features.n_embeddings
    6
    """

    user: FeatureTable
    item: FeatureTable
    context: FeatureTable

    @classmethod
    def from_interactions(
        cls,
        interactions: InteractionsLike,
        *,
        user: Sequence[str] | Mapping[str, Any] = (),
        item: Sequence[str] | Mapping[str, Any] = (),
        item_ids: bool = True,
        contexts: Mapping[str, Any] | None = None,
        ignore_unknown: bool = False,
    ) -> Self:
        """Describe the users and items of some interactions.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            With the columns that are named.
        user, item : sequence of str, or mapping of str to (array_like or None)
            Names of columns of `interactions.user_features` and `interactions.item_features`.  A column whose entries
            are tuples, lists or sets is multi-hot, any other is categorical.  A mapping also gives the values that may
            occur; None, like a plain name, stands for those that do occur, which under a privacy guarantee must be
            public.
        item_ids : bool
            Whether an item's id is one of its features.
        contexts : mapping of str to array_like, or None
            Columns of a log, one entry a row, all of one length: features of a single interaction.  The rows of
            `Events.from_log` say whose they are.
        ignore_unknown : bool
            Whether a user's or a context's value that is not among those given counts as none.  So nothing tells that
            somebody has it; otherwise it is refused by name.

        Returns
        -------
        Features
            Aligned with the users and items of `interactions`.

        Raises
        ------
        KeyError
            A column that is not there, or a value that is not among those given.
        ValueError
            A missing value; the column and entry are named.
        """
        interactions = as_interactions("interactions", interactions)
        chosen_items = _chosen("item", item)
        if check_flag("item_ids", item_ids):
            chosen_items = {_ITEM_ID: interactions.item_ids, **chosen_items}
        if not chosen_items:
            raise ValueError("item must name a column where item_ids is False: else all items are alike")
        tables = _describe(interactions, _chosen("user", user), chosen_items, ignore_unknown)
        return cls(*tables, _context_table(contexts, None))

    def encode(
        self,
        interactions: InteractionsLike,
        *,
        contexts: Mapping[str, Any] | None = None,
        ignore_unknown: bool = False,
    ) -> Self:
        """Describe other interactions by the same features with the same values: a shard, or new users.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            With the same columns; items must be among those of this object, where ids are a feature.
        contexts : mapping of str to array_like, or None
            The same columns of another log; None for no log.
        ignore_unknown : bool
            Whether a user's or a context's value that is not among those given counts as none.  So nothing tells that
            somebody has it; otherwise it is refused by name.

        Returns
        -------
        Features
            For the same embeddings.

        Raises
        ------
        KeyError
            A column or a value that this object does not have.
        """
        interactions = as_interactions("interactions", interactions)
        user, item = (dict(zip(table.names, table.vocabularies, strict=True)) for table in (self.user, self.item))
        tables = _describe(interactions, user, item, ignore_unknown)
        return type(self)(*tables, _context_table(contexts, self.context, ignore_unknown))

    def with_contexts(self, contexts: Mapping[str, Any] | None) -> Self:
        """The same users and items, with the contexts of another log, described by the same values.

        Parameters
        ----------
        contexts : mapping of str to array_like, or None
            The same columns; None for no log.

        Returns
        -------
        Features
            For the same embeddings.

        Raises
        ------
        KeyError
            Other columns, or a value that this object does not have.
        """
        if contexts is not None:
            return type(self)(self.user, self.item, _context_table(contexts, self.context))
        table = self.context
        nothing = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
        return type(self)(self.user, self.item, FeatureTable(table.names, table.vocabularies, 0, *nothing))

    @property
    def n_embeddings(self) -> int:
        """Values of all features: users' first, then contexts', then items'.

        Returns
        -------
        int
            Rows of the table of embeddings.
        """
        return self.user.n_values + self.context.n_values + self.item.n_values


def _chosen(side: str, wanted: Any) -> dict[str, Any]:
    """Name -> vocabulary or None."""
    if isinstance(wanted, str) or not isinstance(wanted, Sequence | Mapping):
        raise TypeError(f"{side} must be a sequence of names of columns, or a mapping, got {wanted!r}")
    return dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)


def _describe(
    interactions: Interactions, user: Mapping[str, Any], item: Mapping[str, Any], ignore_unknown: bool
) -> tuple[FeatureTable, FeatureTable]:
    items = {**interactions.item_features, _ITEM_ID: interactions.item_ids}
    for side, chosen, columns in (("user", user, interactions.user_features), ("item", item, items)):
        for name in chosen:
            if name not in columns:
                raise KeyError(f"{side}={name!r} is not a column; {side}_features has {list(columns)}")
    return (
        _table("user", interactions.user_features, user, interactions.n_users, ignore_unknown),
        _table("item", items, item, interactions.n_items),
    )


def _context_table(
    given: Mapping[str, Any] | None, like: FeatureTable | None, ignore_unknown: bool = False
) -> FeatureTable:
    named = columns_by_name("contexts", given)
    contexts = {name: column_array(f"contexts[{name!r}]", column) for name, column in named.items()}
    lengths = {name: len(column) for name, column in contexts.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"contexts must be columns of one length, got {lengths}")
    chosen: dict[str, Any] = dict.fromkeys(contexts)
    if like is not None:
        chosen = dict(zip(like.names, like.vocabularies, strict=True))
        if contexts.keys() != chosen.keys():
            raise KeyError(f"contexts must have the columns {list(chosen)}, got {list(contexts)}")
    return _table("context", contexts, chosen, max(lengths.values(), default=0), ignore_unknown)


def _table(
    side: str, columns: Mapping[str, np.ndarray], chosen: Mapping[str, Any], n: int, ignore_unknown: bool = False
) -> FeatureTable:
    """Encode columns; `chosen` names them in order, each with its vocabulary or None."""
    coded = [
        _encode(f"{side} feature {name!r}", columns[name], values, ignore_unknown, is_id=name == _ITEM_ID)
        for name, values in chosen.items()
    ]
    counts = np.array([counts for _, counts, _ in coded], dtype=np.int64).reshape(len(coded), n)
    indptr = np.concatenate([[0], np.cumsum(counts.T)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    offset = 0
    for f, (vocabulary, lengths, values) in enumerate(coded):
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        indices[np.repeat(indptr[f : -1 : len(coded)], lengths) + within] = offset + values
        offset += len(vocabulary)
    for array in (indptr, indices):
        array.flags.writeable = False
    return FeatureTable(tuple(chosen), tuple(vocabulary for vocabulary, _, _ in coded), n, indptr, indices)


def _encode(
    name: str, column: np.ndarray, vocabulary: Any, ignore_unknown: bool = False, *, is_id: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(vocabulary, values of each entry: how many, and their numbers)."""
    kinds = {False}
    if column.dtype.kind == "O" and not is_id:  # an id may be a tuple, and is one value all the same
        kinds = {isinstance(value, _MULTI_HOT) for value in column}
    if len(kinds) > 1 and ignore_unknown:  # one odd entry is no reason to refuse the others
        kinds, listed = {True}, column
        column = np.empty(len(listed), dtype=object)
        column[:] = [value if isinstance(value, _MULTI_HOT) else (value,) for value in listed]
    if kinds == {True}:
        lengths = np.fromiter(map(len, column), dtype=np.int64, count=len(column))
        values = column_array(name, itertools.chain.from_iterable(column))
        entries = np.repeat(np.arange(len(column)), lengths)
    elif len(kinds) < 2:
        values, entries = column, np.arange(len(column))
    else:
        raise TypeError(f"{name} must hold single values, or tuples in all entries, got both")
    if vocabulary is None:
        vocabulary, numbers = encode_ids(name, values)
    else:
        vocabulary = axis_ids(f"{name} vocabulary", vocabulary, len(vocabulary))
        index = IdIndex(name, vocabulary)
        numbers = index.find(values) if ignore_unknown else index.rows(values)
        entries, numbers = entries[numbers >= 0], numbers[numbers >= 0]
    pairs = distinct(entries * (len(vocabulary) + 1) + numbers)  # a value that an entry has twice counts once
    entries, numbers = np.divmod(pairs, len(vocabulary) + 1)
    return vocabulary, np.bincount(entries, minlength=len(column)), numbers
