"""How an update travels: in no more records and bytes than its rules need, which are public and the same for both ends.

64-bit integers go in the fewest bytes that hold what lies between their bounds, and a field of one integer goes, in
eight bytes, with what the node tells in words and numbers.  The size of a message says nothing of its entries: Flower's
own integers would, for they take more bytes the larger they are.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastfedrec.rounds.system import ArrayRule

__all__ = ["pack_update", "read_update", "split_update"]

_NUMBER = "update."  # begins the names of fields of one integer
_SENT_NUMBER = np.dtype("<i8")


def pack_update(arrays: Mapping[str, np.ndarray], rules: Mapping[str, ArrayRule]) -> dict[str, np.ndarray]:
    """A system's arrays as a node keeps and sends them.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        What `local_round` made.
    rules : mapping of str to ArrayRule
        The system's own, for the sender.

    Returns
    -------
    dict of str to ndarray
        The same numbers, single ones without an axis.  What breaks its rule stays as it is, for the server to refuse.
    """
    packed = dict(arrays)
    for name, rule in rules.items():
        kind = _sent_as(rule.dtype, rule.shape, rule.low, rule.high)
        if kind != rule.dtype and rule.violation(arrays.get(name)) is None:
            packed[name] = arrays[name].reshape(()) if kind is None else arrays[name].astype(kind)
    return packed


def split_update(packed: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What goes into a record of arrays, and what goes with the node's words and numbers.

    Parameters
    ----------
    packed : mapping of str to ndarray
        From `pack_update`.

    Returns
    -------
    arrays : dict of str to ndarray
        All with an axis.
    numbers : dict of str to bytes
        The others, under names of their own.
    """
    arrays = {name: array for name, array in packed.items() if array.ndim}
    numbers = {name: array for name, array in packed.items() if not array.ndim}
    return arrays, {f"{_NUMBER}{name}": number.astype(_SENT_NUMBER).tobytes() for name, number in numbers.items()}


def read_update(
    arrays: Mapping[str, np.ndarray], told: Mapping[str, Any], rules: Mapping[str, ArrayRule], largest: int
) -> dict[str, np.ndarray]:
    """The arrays that a system made; whether they obey their rules is still to be seen.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        As a stranger sent them.
    told : mapping of str to object
        As well.
    rules : mapping of str to ArrayRule
        The system's own, for the sender.
    largest : int
        Bytes that the result may take.

    Returns
    -------
    dict of str to ndarray
        As they were made; what was not sent in another form than it was made in is as it came.

    Raises
    ------
    ValueError
        More bytes, or a field in another form than the one in which it is sent.
    """
    found = dict(arrays)
    size = 0
    for name, array in arrays.items():
        rule = rules.get(name)
        kind = array.dtype if rule is None else _sent_as(rule.dtype, rule.shape, rule.low, rule.high)
        if kind is None:
            raise ValueError(f"field {name!r} must be sent as a number, got an array of {array.dtype}")
        is_narrow = rule is not None and kind != rule.dtype  # one that is not is for its rule to refuse
        if is_narrow and array.dtype != kind:
            raise ValueError(f"field {name!r} must be sent as {kind}, got an array of {array.dtype}")
        size += array.size * (8 if is_narrow else array.itemsize)
        if size > largest:  # before room is made for them
            raise ValueError(f"its arrays of {size} bytes are larger than the {largest} that a sound one may have")
        if is_narrow:
            found[name] = array.astype(np.int64)
    for name, value in told.items():
        if name.startswith(_NUMBER):
            field = name.removeprefix(_NUMBER)
            rule = rules.get(field)
            if rule is None or _sent_as(rule.dtype, rule.shape, rule.low, rule.high) is not None:
                raise ValueError(f"field {field!r} must not be sent as a number")
            if type(value) is not bytes or len(value) != _SENT_NUMBER.itemsize:
                raise ValueError(f"field {field!r} must be sent as 8 bytes, got {str(value)[:50]!r}")
            found[field] = np.frombuffer(value, _SENT_NUMBER).astype(np.int64)
    return found


@functools.lru_cache(maxsize=256)  # a run's rules are mostly those of the round before
def _sent_as(dtype: type, shape: tuple[int | None, ...], low: float | None, high: float | None) -> np.dtype | None:
    """The one type in which entries from `low` to `high` are sent; None is a number, not an array."""
    if dtype is np.int64 and shape == (1,):
        return None
    if dtype is np.int64 and low is not None and high is not None:
        for kind in (np.int8, np.int16, np.int32):
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
                return np.dtype(kind)
    return np.dtype(dtype)
