"""Checks of timestamps: 64-bit integers; dates, times and ISO 8601 become UTC in a given unit without truncation."""

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_choice, plain_array
from fastfedrec.data.ids import check_exact

__all__ = ["MISSING_TIMESTAMP", "UNITS", "check_timestamps"]

#: Marker of an unknown timestamp.
MISSING_TIMESTAMP = np.iinfo(np.int64).min

#: Units since 1970, and the number of decimal digits of a second that each one represents.
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
UNITS = tuple(DIGITS)

_CLOCK = re.compile(
    r"([T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})(\.(?P<part>[0-9]+))?)?"
    r"(?P<zone>Z|(?P<sign>[-+])(?P<hours>[0-9]{2})(:?(?P<minutes>[0-9]{2}))?)?)?"
)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LARGEST = int(np.iinfo(np.int64).max)


def check_timestamps(timestamps: Any, length: int, *, unit: str = "ns", name: str = "timestamps") -> NDArray[np.int64]:
    """Return timestamps as 64-bit integers.

    Parameters
    ----------
    timestamps : array_like of shape (length,)
        Whole numbers of any unit, which are returned unchanged; dates and times of NumPy, Python, pandas, polars or
        pyarrow; or text of ISO 8601, such as 2009-02-13T23:31:30Z.  Times are in UTC unless they have a time zone.
        Entries may be missing: None, NaN, NaT, null, or masked.
    length : int
        Required number of timestamps.
    unit : {"s", "ms", "us", "ns"}
        Unit since 1970 into which dates and times are converted.
    name : str
        Name of the argument in error messages.

    Returns
    -------
    ndarray of shape (length,), int64
        Timestamps; `MISSING_TIMESTAMP` marks a missing entry.

    Raises
    ------
    TypeError
        Entries that are neither whole numbers nor dates.
    ValueError
        A time that the unit would truncate, or that is out of its range.  The message names the position.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.data.times import check_timestamps
    >>> check_timestamps(np.array(["1970-01-01T00:00:02.5"], dtype="M8[ms]"), 1)
    array([2500000000])
    >>> check_timestamps([978300760, 978302109], 2)
    array([978300760, 978302109])
    """
    # int64 arrays, the most frequent input, need no conversion and no copy.
    unit = check_choice("timestamp_unit", unit, UNITS)
    if type(timestamps) is np.ndarray and timestamps.dtype == np.int64:
        times = timestamps
    else:
        times = _mark_missing(name, timestamps, unit)
    if times.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {times.shape}")
    return times


def _mark_missing(name: str, timestamps: Any, unit: str) -> np.ndarray:
    """Return timestamps as integers, with `MISSING_TIMESTAMP` for missing entries."""
    missing = _missing(timestamps)
    if not missing.any():
        return _integers(name, _array(name, timestamps), unit)
    out = np.full(missing.shape, MISSING_TIMESTAMP, dtype=np.int64)
    positions = np.flatnonzero(~missing)
    if not positions.size:  # without a known entry, the type of the column has no meaning
        return out
    # Missing entries are dropped first, because a column with NaN would convert integers to floats and round them.
    is_masked = isinstance(timestamps, np.ma.MaskedArray)
    known = timestamps.data[~missing] if is_masked else _drop_missing(timestamps)
    out[positions] = _integers(name, _array(name, known), unit, positions)
    return out


def _missing(timestamps: Any) -> np.ndarray:
    """Return a mask of the missing entries of a column or a masked array."""
    if isinstance(timestamps, np.ma.MaskedArray):
        return np.ma.getmaskarray(timestamps)
    is_missing = getattr(timestamps, "isna", None) or getattr(timestamps, "is_null", None)
    if isinstance(timestamps, np.ndarray) or is_missing is None:
        return np.zeros(0, dtype=bool)
    return np.asarray(is_missing(), dtype=bool)


def _drop_missing(column: Any) -> Any:
    """Drop the missing entries of a column of pandas, polars or pyarrow."""
    for drop in ("dropna", "drop_nulls", "drop_null"):
        if hasattr(column, drop):
            return getattr(column, drop)()
    raise TypeError(f"timestamps must be an array or a column, got {type(column).__name__}; use its to_numpy()")


def _array(name: str, timestamps: Any) -> np.ndarray:
    dtype = getattr(timestamps, "dtype", None)
    if getattr(dtype, "kind", None) == "M" and not isinstance(dtype, np.dtype):  # pandas, possibly with a time zone
        stored_dtype = getattr(dtype, "numpy_dtype", None) or np.dtype(f"M8[{dtype.unit}]")  # type: ignore[union-attr]
        return np.asarray(timestamps.to_numpy(dtype=stored_dtype))  # pandas stores UTC
    return plain_array(name, timestamps, missing=True)


def _integers(name: str, array: np.ndarray, unit: str, positions: np.ndarray | None = None) -> np.ndarray:
    """Return entries as integers; `positions` are their positions in the caller's column, for error messages."""
    if array.dtype.kind == "O":
        return _integers_of_objects(name, array, unit, positions)
    if array.dtype.kind in "UT":
        return _integers_of_text(name, array.ravel().tolist(), unit, positions).reshape(array.shape)
    if array.dtype.kind == "M":
        return _integers_of_dates(name, array, unit, positions)
    if array.dtype.kind == "f":
        return _integers_of_floats(name, array, positions)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers or dates, got dtype {array.dtype}; convert them first")
    # Only unsigned integers of 64 bits can exceed the range of int64.
    if array.dtype.kind == "u" and array.size and array.max() > _LARGEST:
        at = int(np.argmax(array > _LARGEST))
        called = _entry_name(name, at, positions)
        raise ValueError(f"{called} must be below 2**63, got {array[at]}; use a coarser unit")
    return array.astype(np.int64, copy=False)


def _integers_of_dates(name: str, dates: np.ndarray, unit: str, positions: np.ndarray | None) -> np.ndarray:
    if np.datetime_data(dates.dtype)[0] == "generic":  # an array of NaT only has no unit
        dates = dates.astype("M8[s]")
    target_dtype = np.dtype(f"M8[{unit}]")
    if np.datetime_data(dates.dtype) != np.datetime_data(target_dtype) and np.can_cast(dates.dtype, target_dtype):
        # A finer unit has a smaller range.  Beyond it NumPy overflows, or from 2.5 raises without a position.
        latest = np.array(_LARGEST).view(target_dtype).astype(dates.dtype).astype(np.int64)
        # NaT is the smallest int64, and its absolute value overflows to a negative number, so it passes.
        if (out_of_range := np.flatnonzero(np.abs(dates.astype(np.int64)) > latest)).size:
            at = int(out_of_range[0])
            raise ValueError(
                f"{_entry_name(name, at, positions)} must be in the range of 64-bit {unit} since 1970, got "
                f"{dates[at]}; use timestamp_unit='s'"
            )
    converted = dates.astype(target_dtype)
    if (truncated := np.flatnonzero((converted.astype(dates.dtype) != dates) & ~np.isnat(dates))).size:
        at = int(truncated[0])
        raise ValueError(
            f"{_entry_name(name, at, positions)} must not be truncated by timestamp_unit={unit!r}, got {dates[at]}; "
            "use a finer unit, or round the times"
        )
    return converted.astype(np.int64)  # the integer of NaT equals MISSING_TIMESTAMP


def _integers_of_floats(name: str, numbers: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
    missing = np.isnan(numbers)
    if (fractional := np.flatnonzero(~missing & ~(np.isfinite(numbers) & (numbers == np.floor(numbers))))).size:
        at = int(fractional[0])
        raise TypeError(
            f"{name} must be whole numbers or dates, got {numbers[at]} at position {_position(at, positions)}; "
            "multiply them to a finer unit, and round"
        )
    placed = numbers
    if positions is not None:  # `check_exact` names the position in the caller's column
        placed = np.zeros(positions[-1] + 1, dtype=numbers.dtype)
        placed[positions] = numbers
    check_exact(name, placed)
    out = np.full(numbers.shape, MISSING_TIMESTAMP, dtype=np.int64)
    out[~missing] = numbers[~missing].astype(np.int64)
    return out


def _integers_of_objects(name: str, objects: np.ndarray, unit: str, positions: np.ndarray | None) -> np.ndarray:
    """Convert dates and whole numbers of Python and pandas."""
    flat = objects.ravel()
    missing = np.array([entry is None or _is_nan(entry) for entry in flat], dtype=bool)
    known = [entry for entry, is_missing in zip(flat, missing, strict=True) if not is_missing]
    if all(isinstance(entry, datetime.date) for entry in known):
        return _integers_of_python_dates(name, known, ~missing, unit, positions).reshape(objects.shape)
    if all(isinstance(entry, str) for entry in known):
        rows = np.flatnonzero(~missing)
        times = np.full(flat.shape, MISSING_TIMESTAMP, dtype=np.int64)
        times[rows] = _integers_of_text(name, known, unit, rows if positions is None else positions[rows])
        return times.reshape(objects.shape)
    for position, entry in zip(np.flatnonzero(~missing), known, strict=True):
        if not isinstance(entry, int | np.integer) or isinstance(entry, bool):
            kind = type(entry).__name__
            raise TypeError(
                f"{_entry_name(name, int(position), positions)} must be a whole number or a date, and all entries of "
                f"the same kind, got {kind}; convert the entries to one kind"
            )
        if not MISSING_TIMESTAMP <= entry <= _LARGEST:
            called = _entry_name(name, int(position), positions)
            raise ValueError(f"{called} must be below 2**63, got {entry}; use a coarser unit")
    numbers = np.full(flat.shape, MISSING_TIMESTAMP, dtype=np.int64)
    numbers[~missing] = np.array(known, dtype=np.int64)
    return numbers.reshape(objects.shape)


def _integers_of_python_dates(
    name: str, moments: list[Any], is_present: np.ndarray, unit: str, positions: np.ndarray | None
) -> np.ndarray:
    """Convert dates of Python and pandas, one resolution at a time."""
    # No single resolution represents both distant years and nanoseconds.
    dates = [_utc(moment) for moment in moments]
    rows = np.flatnonzero(is_present)
    original_positions = np.arange(len(is_present)) if positions is None else positions
    out = np.full(is_present.shape, MISSING_TIMESTAMP, dtype=np.int64)
    for dtype in {date.dtype for date in dates}:
        selected = rows[[date.dtype == dtype for date in dates]]
        of_dtype = np.array([date for date in dates if date.dtype == dtype])
        out[selected] = _integers_of_dates(name, of_dtype, unit, original_positions[selected])
    return out


def _integers_of_text(name: str, texts: list[str], unit: str, positions: np.ndarray | None) -> np.ndarray:
    """Convert text of ISO 8601; each distinct text is read once."""
    number_of = {text: iso_moment(text, unit) for text in set(texts)}
    if (position := next((at for at, text in enumerate(texts) if number_of[text] is None), None)) is not None:
        text, called = texts[position], _entry_name(name, position, positions)
        if any(iso_moment(text, finer) is not None for finer in UNITS):
            raise ValueError(
                f"{called} must be exact in timestamp_unit={unit!r} and in its range of 64 bits, got {text!r}; use "
                "another unit"
            )
        raise TypeError(
            f"{called} must be a whole number, a date, or text of ISO 8601 such as 2009-02-13T23:31:30Z, got the text "
            f"{text!r}; convert the column with pandas.to_datetime, or read the file with load_table and time_format"
        )
    return np.array([number_of[text] for text in texts], dtype=np.int64)


def iso_moment(text: str, unit: str) -> int | None:
    """Return a date or time of ISO 8601 as units since 1970 in UTC, or None for other text or a truncated part.

    Parameters
    ----------
    text : str
        Date or time.
    unit : str
        Unit of the result, one of `DIGITS`.

    Returns
    -------
    int or None
        Number of units since 1970, in UTC.
    """
    day, clock = iso_day(text[:10], unit), iso_clock(text[10:], unit)
    return None if day is None or clock is None or not -_LARGEST <= day + clock <= _LARGEST else day + clock


def iso_day(text: str, unit: str) -> int | None:
    """Return a day such as 2009-02-13 as units since 1970, or None for other text.

    Parameters
    ----------
    text : str
        Day.
    unit : str
        Unit of the result, one of `DIGITS`.

    Returns
    -------
    int or None
        Number of units since 1970.
    """
    if not _DAY.fullmatch(text):
        return None
    try:
        return 86400 * (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days * 10 ** DIGITS[unit]
    except ValueError:
        return None


def iso_clock(text: str, unit: str) -> int | None:
    """Return the text after a date as units since midnight in UTC, or None for other text or a truncated part.

    Parameters
    ----------
    text : str
        Rest of a text that begins with a day; may be empty.
    unit : str
        Unit of the result, one of `DIGITS`.

    Returns
    -------
    int or None
        Number of units since midnight, in UTC.
    """
    # Valid texts are "T23:31", " 23:31:30.25+01:00" and the empty text.
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, hours, minutes = (
        int(match[part] or 0) for part in ("hour", "minute", "second", "hours", "minutes")
    )
    part, digits = (match["part"] or "").rstrip("0"), DIGITS[unit]
    if hour > 23 or minute > 59 or second > 59 or hours > 23 or minutes > 59 or len(part) > digits:
        return None
    # A time east of UTC is later on the clock, so its offset is subtracted.
    offset = 3600 * hours + 60 * minutes
    seconds = 3600 * hour + 60 * minute + second - (-offset if match["sign"] == "-" else offset)
    return seconds * 10**digits + int(part.ljust(digits, "0") or 0)


def _is_nan(entry: Any) -> bool:
    try:
        return bool(entry != entry)
    except TypeError:  # the truth value of pandas.NA is undefined
        return True


def _utc(moment: datetime.date) -> Any:
    """Convert a date or time to NumPy's type in UTC."""
    if hasattr(moment, "to_datetime64"):  # pandas: in UTC, with nanoseconds that `datetime` lacks
        return moment.to_datetime64()
    if not isinstance(moment, datetime.datetime) or (offset := moment.utcoffset()) is None:
        return np.datetime64(moment, "us")
    # The difference may be in year 0 or 10000, which NumPy has and `datetime` lacks.
    return np.datetime64(moment.replace(tzinfo=None), "us") - np.timedelta64(offset, "us")


def _position(position: int, positions: np.ndarray | None) -> int:
    return position if positions is None else int(positions[position])


def _entry_name(name: str, position: int, positions: np.ndarray | None) -> str:
    return f"{name}[{_position(position, positions)}]"
