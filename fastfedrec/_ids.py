"""External ids: any hashable, encoded as rows and looked up again."""

from collections.abc import Iterable
from typing import Any

import numpy as np


class IdIndex:
    """External id -> row: by binary search where the ids are sorted numbers or strings, else by dict."""

    def __init__(self, axis: str, ids: np.ndarray):
        self._axis = axis
        self._ids = ids
        self._sorted = ids.dtype.kind in "iufUS" and bool((ids[1:] > ids[:-1]).all())
        self._dict = None if self._sorted else {key: row for row, key in enumerate(ids.tolist())}

    def rows(self, ids: Any) -> np.ndarray:
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) == 0:
            raise TypeError(f"{self._axis}_ids must be a sequence of ids, got the single id {ids!r}; pass [{ids!r}]")
        if self._sorted:
            wanted = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
            if wanted.size == 0:
                return np.zeros(0, dtype=np.int64)
            numeric = self._ids.dtype.kind in "iuf" and wanted.dtype.kind in "iuf"
            if wanted.ndim == 1 and (numeric or self._ids.dtype.kind == wanted.dtype.kind):
                return self._search(wanted)
            unknown = wanted.ravel()[:1].tolist()[0]
            raise KeyError(
                f"{self._axis} id {unknown!r} is unknown: the ids here are of dtype {self._ids.dtype}, got {wanted.dtype}"
            )
        out = np.empty(len(ids := list(ids)), dtype=np.int64)
        for position, key in enumerate(ids):
            try:
                out[position] = self._dict[key]
            except KeyError:
                raise self._unknown(key) from None
        return out

    def _search(self, wanted: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self._ids, wanted)
        known = found < len(self._ids)
        known[known] = self._ids[found[known]] == wanted[known]
        if not known.all():
            raise self._unknown(wanted[~known][0].item())
        return found

    def _unknown(self, key) -> KeyError:
        return KeyError(f"{self._axis} id {key!r} is unknown; the model and data hold {len(self._ids)} {self._axis}s")


def column_array(values: Any) -> np.ndarray:
    """A one-dimensional array, of objects where the entries are tuples, lists or mixed."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    values = list(values)
    if all(type(v) is type(values[0]) and isinstance(v, bool | int | float | str) for v in values):
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def encode_ids(name: str, ids: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distinct external ids, and the row of each entry among them."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise TypeError(f"{name} must be a sequence of ids, got {type(ids).__name__}")
    if not (isinstance(ids, np.ndarray) and ids.dtype.kind != "O"):
        listed = list(ids)
        for position, key in enumerate(listed):
            if key is None or key != key:
                raise ValueError(f"{name}[{position}] is missing ({key!r}); drop that row or give it an id")
        kinds = {type(key) for key in listed}
        plain = len(kinds) == 1 and issubclass(next(iter(kinds)), int | float | str | np.integer | np.floating)
        ids = np.array(listed) if plain and kinds != {bool} else None
        if ids is None or ids.dtype.kind == "O":  # mixed types, tuples, or integers beyond 64 bits
            return _encode_objects(name, listed)
    if ids.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got shape {ids.shape}")
    if ids.dtype.kind not in "iufUSbMm":
        raise TypeError(f"{name} must hold hashable ids, got dtype {ids.dtype}")
    if ids.dtype.kind in "fMm" and (bad := np.flatnonzero(ids != ids)).size:
        raise ValueError(f"{name}[{bad[0]}] is missing ({ids[bad[0]]!r}); drop that row or give it an id")
    if ids.size and ids.dtype.kind in "iu" and ids.min() >= 0 and (top := int(ids.max())) < 4 * ids.size + 1024:
        present = np.zeros(top + 1, dtype=bool)  # dense integer ids: one pass instead of a sort
        present[ids] = True
        return np.flatnonzero(present).astype(ids.dtype), (np.cumsum(present) - 1)[ids]
    unique, rows = np.unique(ids, return_inverse=True)
    return unique, rows.reshape(-1)


def _encode_objects(name: str, ids: list) -> tuple[np.ndarray, np.ndarray]:
    first: dict = {}
    rows = np.empty(len(ids), dtype=np.int64)
    for position, key in enumerate(ids):
        try:
            rows[position] = first.setdefault(key, len(first))
        except TypeError:
            raise TypeError(f"{name}[{position}] is not hashable ({type(key).__name__}); convert it to a tuple") from None
    try:
        keys = sorted(first)
    except TypeError:
        keys = list(first)
    rank = np.empty(len(first), dtype=np.int64)
    for new, key in enumerate(keys):
        rank[first[key]] = new
    unique = np.empty(len(keys), dtype=object)
    unique[:] = keys
    return unique, rank[rows]


def axis_ids(name: str, ids: Any, length: int) -> np.ndarray:
    if ids is None:
        return np.arange(length, dtype=np.int64)
    array = ids if isinstance(ids, np.ndarray) and ids.ndim == 1 else column_array(ids)
    if len(array) != length:
        raise ValueError(f"{name} must have {length} entries, one per row or column of matrix, got {len(array)}")
    distinct, _ = encode_ids(name, array)
    if len(distinct) != length:
        raise ValueError(f"{name} must be distinct, got {length - len(distinct)} repeated")
    return array
