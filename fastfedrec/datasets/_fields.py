"""Kinds of fields of text files, and their reference parser, with which all faster parsers agree."""

import math
import re
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from typing import Any

from fastfedrec.data.times import DIGITS, MISSING_TIMESTAMP, iso_moment

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # canonical form, because 7 and 007 are different ids
_WHOLE = re.compile(r"([-+]?)0*([0-9]{1,19})")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_DECIMAL_PARTS = re.compile(r"([-+]?)([0-9]*)\.?([0-9]*)[eE]?([-+]?)0*([0-9]*)")
_MAX_INT64 = 2**63 - 1
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: Formats that error messages suggest if they fit a text; of several that fit, the user must choose one.
_COMMON_FORMATS = (
    "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y", "%d/%m/%Y",
    "%m/%d/%y %H:%M", "%d/%m/%y %H:%M", "%m/%d/%y", "%d/%m/%y", "%m/%d/%Y %I:%M:%S %p", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%Y %H:%M", "%m-%d-%Y %H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z", "%d %b %Y",
    "%d %b, %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%m %d, %Y", "%d-%b-%Y", "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S.%f UTC", "%Y-%m-%d %H:%M:%S %z", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ",
    "%b %d, %Y %H:%M", "%b %d, %Y %I:%M %p", "%m/%d/%Y %I:%M %p", "%d-%m-%Y %H:%M:%S",
)  # fmt: skip
_YEARS = "YyGcxDF"  # directives of `datetime.strptime` with a year
#: Directives that `datetime.strptime` ignores or completes unless the format has one of the others, and the remedy.
_NEEDED = (
    ("Z", "z", "use %z, or write UTC as text in the format"),
    ("I", "p", "use %H for the hours of a day"),
    ("p", "I", "use %I for the hours before %p"),
    ("M", "HI", "use %m for the month"),
    ("d", "bBm", "add the month"),
    ("UW", "aAwu", "add the day of the week"),
    ("aAwu", "djUWVcxDF", "add the day of the month"),
)
NULL = "\\N"  # empty field in files of MySQL and IMDb
BYTE_ORDER_MARK = "\ufeff"  # occurs inside of concatenated files; not a part of an id
#: Blanks that are removed around a field without quotes: the tab, and Unicode's spaces (category Zs).
BLANKS = "\t \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


class Kind(Enum):
    """Kind of the contents of a field."""

    SKIP = "a field that is skipped"
    ID = "a whole number of at most 63 bits as Python writes it"
    WHOLE = "a whole number of at most 63 bits"
    DECIMAL = "a finite number"
    ISO = "a date or date and time of ISO 8601, as a number since 1970, in UTC unless it has a time zone"
    STATED = "a time in a given format, as a number since 1970"
    TEXT = "text, not empty"


@dataclass(frozen=True)
class Field:
    """Description of a field that every line has."""

    name: str
    kind: Kind = Kind.SKIP
    rule: str = ""  # description of valid contents in error messages
    optional: bool = False  # whether the field may be empty
    low: float = -math.inf
    high: float = math.inf
    step: float = 0.0  # numbers must be multiples of it, unless it is 0
    unit: str = "s"  # of the numbers that dates and times become; it must not truncate them
    time_format: str = ""  # of the kind STATED

    def allows(self, number: float) -> bool:
        """Return whether a number is in the limits."""
        return self.low <= number <= self.high and (not self.step or number % self.step == 0)


class FieldError(ValueError):
    """Invalid field, with its position `index` in the line and its `text`."""

    def __init__(self, message: str, index: int, text: str):
        super().__init__(message)
        self.index, self.text = index, text


def parse_field(field: Field, text: str) -> int | float | str | None:
    """Parse the text of a field without quotes; return its value, or None if it is invalid."""
    # An empty optional field is `MISSING_TIMESTAMP`, or "" for text.  Blanks in quotes belong to ids and texts only.
    if field.kind not in (Kind.TEXT, Kind.ID):
        text = text.strip(BLANKS)
    if text == NULL:
        text = ""
    if not text:
        return (text if field.kind is Kind.TEXT else MISSING_TIMESTAMP) if field.optional else None
    if field.kind is Kind.TEXT:
        return None if text.startswith(BYTE_ORDER_MARK) else text
    if field.kind is Kind.ISO:
        return iso_moment(text, field.unit)
    if field.kind is Kind.STATED:
        return stated_moment(text, field.time_format, field.unit)
    if field.kind is Kind.ID:
        number: float = int(text) if _INTEGER.fullmatch(text) else math.nan
    elif field.kind is Kind.WHOLE:
        whole = _WHOLE.fullmatch(text)
        number = int(whole[1] + whole[2]) if whole else math.nan
    else:
        number = float(text) + 0.0 if _DECIMAL.fullmatch(text) else math.nan  # + 0.0 removes negative zeros
        return number if math.isfinite(number) and field.allows(number) else None
    return number if -_MAX_INT64 <= number <= _MAX_INT64 and field.allows(number) else None


def check_time_format(time_format: Any) -> str:
    """Return a unit of numbers or a format of `datetime.strptime`, or raise for other values."""
    if not isinstance(time_format, str) or not (time_format in DIGITS or "%" in time_format):
        raise ValueError(
            "time_format must be 's', 'ms', 'us' or 'ns' for numbers since 1970, or a format of datetime.strptime, got "
            f"{time_format!r}; for example '%d/%m/%Y %H:%M'"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a day without a year, which is refused below
            datetime.strptime("", time_format)
    except ValueError as error:
        if "directive" in str(error) or "stray" in str(error):
            raise ValueError(
                f"time_format must be a format of datetime.strptime, got {time_format!r}: {error}"
            ) from None
    given = set(re.findall("%(.)", time_format.replace("%%", "")))
    if time_format not in DIGITS and not given & set(_YEARS):
        raise ValueError(f"time_format must have a year, got {time_format!r}; add %Y to the format and to the times")
    for directives, others, remedy in _NEEDED:
        if (alone := sorted(given & set(directives))) and not given & set(others):
            needed = " or ".join(f"%{other}" for other in others)
            raise ValueError(f"time_format with %{alone[0]} must have {needed}, got {time_format!r}; {remedy}")
    return time_format


def stated_moment(text: str, time_format: str, unit: str) -> int | None:
    """Return a time in a given format as units since 1970, or None for another format or a truncated part."""
    if time_format in DIGITS:
        return _shifted(text, DIGITS[unit] - DIGITS[time_format]) if _DECIMAL.fullmatch(text) else None
    try:
        moment = datetime.strptime(text, time_format)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Fractions are exact, so a part that the unit would truncate shows in the denominator.
    exact = Fraction((moment - _EPOCH) // _MICROSECOND, 10**6) * 10 ** DIGITS[unit]
    return int(exact) if exact.denominator == 1 and abs(exact) <= _MAX_INT64 else None


def _shifted(text: str, power: int) -> int | None:
    """Return a decimal number times a power of 10, or None unless it is whole and has at most 63 bits."""
    sign, whole, part, exponent_sign, exponent = _DECIMAL_PARTS.fullmatch(text).groups()  # type: ignore[union-attr]
    digits = (whole + part).lstrip("0")
    stripped = digits.rstrip("0")
    if not stripped:
        return 0
    # The number of zeros decides before a power is computed, which an exponent in a file could make too large to hold.
    n_zeros = power - len(part) + len(digits) - len(stripped) + int(f"{exponent_sign}0{exponent[:20]}")
    if n_zeros < 0 or len(stripped) + n_zeros > 19:
        return None
    number = int(f"{sign}{stripped}") * 10**n_zeros
    return number if abs(number) <= _MAX_INT64 else None


def fitting_formats(text: str) -> list[str]:
    """Return the common formats that fit a text."""
    return [common for common in _COMMON_FORMATS if stated_moment(text, common, "us") is not None]
