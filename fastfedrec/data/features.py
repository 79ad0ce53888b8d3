"""Side features of users, items and single interactions, encoded as rows of embedding tables."""

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

_MULTI_HOT = tuple, list, set, frozenset  # types of an entry with several values
_ITEM_ID = "item id"


@dataclass(frozen=True)
class FeatureTable(Remade):
    """Encoded feature values of each entry: a user, an item or a context.

    Parameters
    ----------
    names : tuple of str
        Names of the features.
    vocabularies : tuple of ndarray
        Distinct values of each feature.
    n_entries : int
        Number of users, items or contexts.
    indptr : ndarray of shape (n_entries * n_features + 1,), int64
        Offsets into `indices`.  The values of feature f of entry e begin at ``indptr[e * n_features + f]``.
    indices : ndarray of int32
        Numbers of the values, which count through all vocabularies in order; ascending within an entry's feature.
    """

    names: tuple[str, ...]
    vocabularies: tuple[NDArray[Any], ...]
    n_entries: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    def __post_init__(self) -> None:
        n_rows = check_integer("table.n_entries", self.n_entries, low=0) * self.n_features
        if len(self.vocabularies) != self.n_features:
            raise ValueError(
                f"table.vocabularies must have one entry for each of the {self.n_features} names, got "
                f"{len(self.vocabularies)}; add or remove vocabularies"
            )
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
            Number of features of each entry, at least 0.
        """
        return len(self.names)

    @property
    def n_values(self) -> int:
        """Number of values of all features, which is the number of rows of an embedding table.

        Returns
        -------
        int
            Sum of the vocabularies' lengths.
        """
        return sum(map(len, self.vocabularies))


@dataclass(frozen=True)
class Features:
    """Features of users, items and single interactions; use `from_interactions` to build an object.

    A categorical feature has one value per entry.  A multi-hot feature has any number of values.  Its embedding is
    the mean of the embeddings of its values, or zeros if it has no value.

    Parameters
    ----------
    user : FeatureTable
        Table with one entry per user.
    item : FeatureTable
        Table with one entry per item.  The item's id is the first feature, unless it was excluded.
    context : FeatureTable
        Table with one entry per row of a log of interactions; it has no features if there is no log.

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
        """Encode the features of the users and items of interactions.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Interactions with the named feature columns.
        user, item : sequence of str, or mapping of str to (array_like or None)
            Names of columns of `interactions.user_features` and `interactions.item_features`.  A column of tuples,
            lists or sets is multi-hot; other columns are categorical.  A mapping also gives the vocabulary of each
            column.  None, like a name without a mapping, takes the values that occur in the data.  Under a privacy
            guarantee these values must be public.
        item_ids : bool
            Whether an item's id is one of its features.
        contexts : mapping of str to array_like, or None
            Columns of a log of equal length, with one entry per row; they are features of a single interaction.  The
            rows of `Events.from_log` give the user of each entry.
        ignore_unknown : bool
            Whether a user's or a context's value outside the given vocabulary counts as missing.  The output then does
            not reveal that a user has it.  False raises an error that names the value.

        Returns
        -------
        Features
            Features in the order of the users and items of `interactions`.

        Raises
        ------
        KeyError
            A missing column, or a value outside the given vocabulary.
        ValueError
            A missing value.  The message names the column and the entry.
        """
        interactions = as_interactions("interactions", interactions)
        item_vocabularies = _vocabularies_by_name("item", item)
        if check_flag("item_ids", item_ids):
            item_vocabularies = {_ITEM_ID: interactions.item_ids, **item_vocabularies}
        if not item_vocabularies:
            raise ValueError("item must name a column if item_ids is False, got none; name one, or set item_ids=True")
        tables = _describe(interactions, _vocabularies_by_name("user", user), item_vocabularies, ignore_unknown)
        return cls(*tables, _context_table(contexts, None))

    def encode(
        self,
        interactions: InteractionsLike,
        *,
        contexts: Mapping[str, Any] | None = None,
        ignore_unknown: bool = False,
    ) -> Self:
        """Encode other interactions, such as a shard or new users, with the same features and vocabularies.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Interactions with the same columns.  If ids are a feature, this object must contain all of their items.
        contexts : mapping of str to array_like, or None
            The same columns of another log; None for no log.
        ignore_unknown : bool
            Whether a user's or a context's value outside the vocabulary counts as missing.  The output then does not
            reveal that a user has it.  False raises an error that names the value.

        Returns
        -------
        Features
            Features for the same embeddings.

        Raises
        ------
        KeyError
            A column or a value that this object does not contain.
        """
        interactions = as_interactions("interactions", interactions)
        user, item = (dict(zip(table.names, table.vocabularies, strict=True)) for table in (self.user, self.item))
        tables = _describe(interactions, user, item, ignore_unknown)
        return type(self)(*tables, _context_table(contexts, self.context, ignore_unknown))

    def with_contexts(self, contexts: Mapping[str, Any] | None) -> Self:
        """Return the same users and items with the contexts of another log.

        Parameters
        ----------
        contexts : mapping of str to array_like, or None
            The same columns of another log; None for no log.

        Returns
        -------
        Features
            Features for the same embeddings.

        Raises
        ------
        KeyError
            Other columns, or a value that this object does not contain.
        """
        if contexts is not None:
            return type(self)(self.user, self.item, _context_table(contexts, self.context))
        table = self.context
        no_rows = np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
        return type(self)(self.user, self.item, FeatureTable(table.names, table.vocabularies, 0, *no_rows))

    @property
    def n_embeddings(self) -> int:
        """Number of values of all features, in the order users, contexts, items.

        Returns
        -------
        int
            Number of rows of the embedding table.
        """
        return self.user.n_values + self.context.n_values + self.item.n_values


def _vocabularies_by_name(side: str, columns: Any) -> dict[str, Any]:
    """Return a mapping from the name of each column to its vocabulary, or to None if none is given."""
    if isinstance(columns, str) or not isinstance(columns, Sequence | Mapping):
        raise TypeError(f"{side} must be a list of column names or a mapping, got {columns!r}; pass a list of names")
    return dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns)


def _describe(
    interactions: Interactions, user: Mapping[str, Any], item: Mapping[str, Any], ignore_unknown: bool
) -> tuple[FeatureTable, FeatureTable]:
    items = {**interactions.item_features, _ITEM_ID: interactions.item_ids}
    for side, names, columns in (("user", user, interactions.user_features), ("item", item, items)):
        for name in names:
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
        raise ValueError(f"contexts must have columns of equal length, got {lengths}; give each one entry per row")
    vocabularies: dict[str, Any] = dict.fromkeys(contexts)
    if like is not None:
        vocabularies = dict(zip(like.names, like.vocabularies, strict=True))
        if contexts.keys() != vocabularies.keys():
            raise KeyError(f"contexts must have the columns {list(vocabularies)}, got {list(contexts)}")
    return _table("context", contexts, vocabularies, max(lengths.values(), default=0), ignore_unknown)


def _table(
    side: str, columns: Mapping[str, np.ndarray], vocabularies: Mapping[str, Any], n: int, ignore_unknown: bool = False
) -> FeatureTable:
    """Encode the columns that `vocabularies` names, with its values or with the values that occur."""
    coded = [
        _encode(f"{side} feature {name!r}", columns[name], values, ignore_unknown, is_id=name == _ITEM_ID)
        for name, values in vocabularies.items()
    ]
    # `counts` has one row per feature; its transpose gives the values of an entry in the order of features.
    counts = np.array([counts for _, counts, _ in coded], dtype=np.int64).reshape(len(coded), n)
    indptr = np.concatenate([[0], np.cumsum(counts.T)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    offset = 0  # number of values of the features before feature f
    for f, (vocabulary, lengths, values) in enumerate(coded):
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        # The rows of `indptr` interleave features: entry e, feature f is row e * n_features + f.
        indices[np.repeat(indptr[f : -1 : len(coded)], lengths) + within] = offset + values
        offset += len(vocabulary)
    for array in (indptr, indices):
        array.flags.writeable = False
    return FeatureTable(tuple(vocabularies), tuple(vocabulary for vocabulary, _, _ in coded), n, indptr, indices)


def _encode(
    name: str, column: np.ndarray, vocabulary: Any, ignore_unknown: bool = False, *, is_id: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vocabulary, the number of values of each entry, and the numbers of these values."""
    kinds = {False}
    if column.dtype.kind == "O" and not is_id:  # an id that is a tuple is a single value
        kinds = {isinstance(value, _MULTI_HOT) for value in column}
    if len(kinds) > 1 and ignore_unknown:  # one entry of another kind must not raise an error
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
        raise TypeError(f"{name} must hold either single values or tuples, got both; make each entry a tuple")
    if vocabulary is None:
        vocabulary, numbers = encode_ids(name, values)
    else:
        vocabulary = axis_ids(f"{name} vocabulary", vocabulary, len(vocabulary))
        index = IdIndex(name, vocabulary)
        numbers = index.find(values) if ignore_unknown else index.rows(values)
        entries, numbers = entries[numbers >= 0], numbers[numbers >= 0]
    # A value that occurs twice in an entry counts once: each pair (entry, value) is coded as one integer.
    pairs = distinct(entries * (len(vocabulary) + 1) + numbers)
    entries, numbers = np.divmod(pairs, len(vocabulary) + 1)
    return vocabulary, np.bincount(entries, minlength=len(column)), numbers
