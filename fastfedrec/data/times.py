"""One rule for times at every door: 64-bit integers, dates and times in UTC of a unit that is named, nothing cut."""

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_choice, plain_array
from fastfedrec.data.ids import check_exact

__all__ = ["MISSING_TIMESTAMP", "UNITS", "check_timestamps"]

#: A timestamp that is not known.
MISSING_TIMESTAMP = np.iinfo(np.int64).min

#: What a date or time may become a number of, since 1970, and the digits of a second that it keeps.
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
UNITS = tuple(DIGITS)

_LARGEST = np.iinfo(np.int64).max


def check_timestamps(timestamps: Any, length: int, *, unit: str = "ns", name: str = "timestamps") -> NDArray[np.int64]:
    """Timestamps as 64-bit integers, one for each pair.

    Parameters
    ----------
    timestamps : array_like of shape (length,)
        Whole numbers of any unit, which are taken as they are; or dates and times: NumPy's, Python's, and columns of
        pandas, polars and pyarrow, with a zone or else of UTC.  An entry may be missing: None, NaN, NaT, a null, what a
        mask hides.
    length : int
        How many there must be.
    unit : {"s", "ms", "us", "ns"}
        What dates and times become.
    name : str
        The argument's name, for messages.

    Returns
    -------
    ndarray of shape (length,), int64
        `MISSING_TIMESTAMP` where an entry is missing.

    Raises
    ------
    TypeError
        Neither whole numbers nor dates.
    ValueError
        A time that the unit would cut, or that it does not reach; its position is named.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.data.times import check_timestamps
    >>> check_timestamps(np.array(["1970-01-01T00:00:02.5"], dtype="M8[ms]"), 1)
    array([2500000000])
    >>> check_timestamps([978300760, 978302109], 2)
    array([978300760, 978302109])
    """
    unit = check_choice("timestamp_unit", unit, UNITS)
    if type(timestamps) is np.ndarray and timestamps.dtype == np.int64:  # nearly always
        times = timestamps
    else:
        times = _known_and_missing(name, timestamps, unit)
    if times.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {times.shape}")
    return times


def _known_and_missing(name: str, timestamps: Any, unit: str) -> np.ndarray:
    missing = _missing(timestamps)
    if not missing.any():
        return _numbers(name, _array(name, timestamps), unit)
    out = np.full(missing.shape, MISSING_TIMESTAMP, dtype=np.int64)
    where = np.flatnonzero(~missing)
    # Without what is missing first: beside it NumPy would have whole numbers rounded to floats.
    masked = isinstance(timestamps, np.ma.MaskedArray)
    known = timestamps.data[~missing] if masked else _without_missing(timestamps)
    out[where] = _numbers(name, _array(name, known), unit, where)
    return out


def _missing(timestamps: Any) -> np.ndarray:
    """Which entries a column or a mask says are missing."""
    if isinstance(timestamps, np.ma.MaskedArray):
        return np.ma.getmaskarray(timestamps)
    ask = getattr(timestamps, "isna", None) or getattr(timestamps, "is_null", None)
    if isinstance(timestamps, np.ndarray) or ask is None:
        return np.zeros(0, dtype=bool)
    return np.asarray(ask(), dtype=bool)


def _without_missing(column: Any) -> Any:
    """A column of pandas, polars or pyarrow without its missing entries."""
    for drop in ("dropna", "drop_nulls", "drop_null"):
        if hasattr(column, drop):
            return getattr(column, drop)()
    raise TypeError(f"timestamps must be an array or a column, got {type(column).__name__}; use its to_numpy()")


def _array(name: str, timestamps: Any) -> np.ndarray:
    dtype = getattr(timestamps, "dtype", None)
    if getattr(dtype, "kind", None) == "M" and not isinstance(dtype, np.dtype):  # pandas, perhaps with a zone
        own = getattr(dtype, "numpy_dtype", None) or np.dtype(f"M8[{dtype.unit}]")  # type: ignore[union-attr]
        return np.asarray(timestamps.to_numpy(dtype=own))  # in UTC, as it is stored
    return plain_array(name, timestamps, missing=True)


def _numbers(name: str, array: np.ndarray, unit: str, where: np.ndarray | None = None) -> np.ndarray:
    """Entries as integers; `where` says what positions they had."""
    if array.dtype.kind == "O":
        return _of_objects(name, array, unit, where)
    if array.dtype.kind == "M":
        return _of_dates(name, array, unit, where)
    if array.dtype.kind == "f":
        return _of_floats(name, array, where)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers or dates, got dtype {array.dtype}; convert them first")
    if array.dtype.kind == "u" and array.size and array.max() > _LARGEST:
        at = int(np.argmax(array > _LARGEST))
        raise ValueError(f"{_at(name, at, where)} must be below 2**63, got {array[at]}; use another unit")
    return array.astype(np.int64, copy=False)


def _of_dates(name: str, dates: np.ndarray, unit: str, where: np.ndarray | None) -> np.ndarray:
    if np.datetime_data(dates.dtype)[0] == "generic":  # nothing but NaT
        dates = dates.astype("M8[s]")
    wanted = np.dtype(f"M8[{unit}]")
    if np.datetime_data(dates.dtype) != np.datetime_data(wanted) and np.can_cast(dates.dtype, wanted):
        # A finer unit reaches less far.  NumPy wraps around there, or raises without a position since 2.5.
        latest = np.array(_LARGEST).view(wanted).astype(dates.dtype).astype(np.int64)
        if (beyond := np.flatnonzero(np.abs(dates.astype(np.int64)) > latest)).size:  # NaT, a minimum, stays negative
            at = int(beyond[0])
            raise ValueError(
                f"{_at(name, at, where)} is {dates[at]}, which 64 bits of {unit} since 1970 do not reach; use "
                "timestamp_unit='s'"
            )
    converted = dates.astype(wanted)
    if (other := np.flatnonzero((converted.astype(dates.dtype) != dates) & ~np.isnat(dates))).size:
        at = int(other[0])
        raise ValueError(
            f"{_at(name, at, where)} is {dates[at]}, of which timestamp_unit={unit!r} would cut a part; use a finer "
            "unit, or round the times"
        )
    return converted.astype(np.int64)  # NaT is MISSING_TIMESTAMP


def _of_floats(name: str, numbers: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    missing = np.isnan(numbers)
    if (broken := np.flatnonzero(~missing & ~(np.isfinite(numbers) & (numbers == np.floor(numbers))))).size:
        at = int(broken[0])
        raise TypeError(
            f"{name} must be whole numbers or dates, got {numbers[at]} at position {_place(at, where)}; multiply them "
            "to a finer unit, and round"
        )
    placed = numbers
    if where is not None:  # so that the message names the position in the column
        placed = np.zeros(where[-1] + 1, dtype=numbers.dtype)
        placed[where] = numbers
    check_exact(name, placed)
    out = np.full(numbers.shape, MISSING_TIMESTAMP, dtype=np.int64)
    out[~missing] = numbers[~missing].astype(np.int64)
    return out


def _of_objects(name: str, objects: np.ndarray, unit: str, where: np.ndarray | None) -> np.ndarray:
    """Python's dates and whole numbers, and what pandas has for them."""
    flat = objects.ravel()
    missing = np.array([entry is None or _is_nan(entry) for entry in flat], dtype=bool)
    known = [entry for entry, is_missing in zip(flat, missing, strict=True) if not is_missing]
    if all(isinstance(entry, datetime.date) for entry in known):
        return _of_moments(name, known, ~missing, unit, where).reshape(objects.shape)
    for position, entry in zip(np.flatnonzero(~missing), known, strict=True):
        if not isinstance(entry, int | np.integer) or isinstance(entry, bool):
            kind = type(entry).__name__
            raise TypeError(
                f"{_at(name, int(position), where)} must be a whole number or a date, as all are, got {kind}; "
                "convert them first"
            )
        if not MISSING_TIMESTAMP <= entry <= _LARGEST:
            raise ValueError(f"{_at(name, int(position), where)} must be below 2**63, got {entry}; use another unit")
    numbers = np.full(flat.shape, MISSING_TIMESTAMP, dtype=np.int64)
    numbers[~missing] = np.array(known, dtype=np.int64)
    return numbers.reshape(objects.shape)


def _of_moments(name: str, moments: list[Any], there: np.ndarray, unit: str, where: np.ndarray | None) -> np.ndarray:
    """Dates of Python and pandas, each kind in its own resolution: no other holds both far years and nanoseconds."""
    dates = [_utc(moment) for moment in moments]
    positions, places = np.flatnonzero(there), np.arange(len(there)) if where is None else where
    out = np.full(there.shape, MISSING_TIMESTAMP, dtype=np.int64)
    for dtype in {date.dtype for date in dates}:
        chosen = positions[[date.dtype == dtype for date in dates]]
        of_dtype = np.array([date for date in dates if date.dtype == dtype])
        out[chosen] = _of_dates(name, of_dtype, unit, places[chosen])
    return out


def _is_nan(entry: Any) -> bool:
    try:
        return bool(entry != entry)
    except TypeError:  # pandas.NA, of which that is not known either
        return True


def _utc(moment: datetime.date) -> Any:
    """A date or time as NumPy has it, without a zone."""
    if hasattr(moment, "to_datetime64"):  # of pandas, whose nanoseconds Python's own would lose; in UTC
        return moment.to_datetime64()
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(moment, "us")


def _place(position: int, where: np.ndarray | None) -> int:
    return position if where is None else int(where[position])


def _at(name: str, position: int, where: np.ndarray | None) -> str:
    return f"{name}[{_place(position, where)}]"
