"""What a place in every line may hold, and one field of it as Python reads it: the rule that all reading follows."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from fractions import Fraction
from typing import Any

from fastfedrec.data.times import DIGITS, MISSING_TIMESTAMP

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # as Python writes one: what is written in two ways is two ids
_WHOLE = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CLOCK = re.compile(
    r"([T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})(\.(?P<part>[0-9]+))?)?"
    r"(?P<zone>Z|(?P<sign>[-+])(?P<hours>[0-9]{2})(:?(?P<minutes>[0-9]{2}))?)?)?"
)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOST = 2**63 - 1
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: Formats that messages name where a text fits them; where two fit, the reader of the message must choose.
_COMMON_FORMATS = (
    "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y", "%d/%m/%Y",
    "%m/%d/%y %H:%M", "%d/%m/%y %H:%M", "%m/%d/%y", "%d/%m/%y", "%m/%d/%Y %I:%M:%S %p", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%Y %H:%M", "%m-%d-%Y %H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z", "%d %b %Y",
    "%d %b, %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%m %d, %Y", "%d-%b-%Y", "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S.%f UTC", "%Y-%m-%d %H:%M:%S %z", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ",
    "%b %d, %Y %H:%M", "%b %d, %Y %I:%M %p", "%m/%d/%Y %I:%M %p", "%d-%m-%Y %H:%M:%S",
)  # fmt: skip
NULL = "\\N"  # of MySQL and IMDb, for an empty field
BYTE_ORDER_MARK = "\ufeff"  # of a file that was put behind another: no part of an id
#: Around a field that stands in no quotes they are no part of it: the tab, and Unicode's spaces (category Zs).
BLANKS = "\t \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


class Kind(Enum):
    """What a field holds."""

    SKIP = "nothing that is read"
    ID = "a whole number of at most 63 bits as Python writes it"
    WHOLE = "a whole number of at most 63 bits"
    DECIMAL = "a finite number"
    ISO = "a date or date and time of ISO 8601, as a number since 1970, in UTC where it names no zone"
    STATED = "a time in the form that is stated, as a number since 1970"
    TEXT = "text, not empty"


@dataclass(frozen=True)
class Field:
    """What stands in one place of every line, and in words what it must be.

    Numbers are from `low` to `high`, and multiples of `step` where that is not 0; dates and times become numbers of
    `unit`, which cuts no part of them; `time_format` is the form of a stated one.  What is `optional` may be empty.
    """

    name: str
    kind: Kind = Kind.SKIP
    rule: str = ""
    optional: bool = False
    low: float = -math.inf
    high: float = math.inf
    step: float = 0.0
    unit: str = "s"
    time_format: str = ""

    def allows(self, number: float) -> bool:
        """Whether a number is in the limits."""
        return self.low <= number <= self.high and (not self.step or number % self.step == 0)


class FieldError(ValueError):
    """A field that is not what it should be: `index` and `text` of it."""

    def __init__(self, message: str, index: int, text: str):
        super().__init__(message)
        self.index, self.text = index, text


def parse_field(field: Field, text: str) -> int | float | str | None:
    """Read one field.

    Parameters
    ----------
    field : Field
        What it must be.
    text : str
        What stands there, without the quotes around it.

    Returns
    -------
    int, float, str or None
        `MISSING_TIMESTAMP` for what is empty and may be, for text the empty one; None where the field is not what it
        should be.
    """
    if field.kind not in (Kind.TEXT, Kind.ID):  # in quotes, blanks are a part of ids alone
        text = text.strip(BLANKS)
    if text == NULL:
        text = ""
    if not text:
        return (text if field.kind is Kind.TEXT else MISSING_TIMESTAMP) if field.optional else None
    if field.kind is Kind.TEXT:
        return None if text.startswith(BYTE_ORDER_MARK) else text
    if field.kind is Kind.ISO:
        return _parse_iso(text, field.unit)
    if field.kind is Kind.STATED:
        return stated_moment(text, field.time_format, field.unit)
    if field.kind is Kind.ID:
        number: float = int(text) if _INTEGER.fullmatch(text) else math.nan
    elif field.kind is Kind.WHOLE:
        number = int(text) if _WHOLE.fullmatch(text) else math.nan
    else:
        number = float(text) + 0.0 if _DECIMAL.fullmatch(text) else math.nan  # no negative zeros
        return number if math.isfinite(number) and field.allows(number) else None
    return number if -_MOST <= number <= _MOST and field.allows(number) else None


def _parse_iso(text: str, unit: str) -> int | None:
    day, clock = iso_day(text[:10], unit), iso_clock(text[10:], unit)
    return None if day is None or clock is None or not -_MOST <= day + clock <= _MOST else day + clock


def check_time_format(time_format: Any) -> str:
    """A unit of numbers, or a format of `datetime.strptime`."""
    if not isinstance(time_format, str) or not (time_format in DIGITS or "%" in time_format):
        raise ValueError(
            "time_format must be 's', 'ms', 'us' or 'ns' for numbers since 1970, or a format of datetime.strptime, got "
            f"{time_format!r}; for example '%d/%m/%Y %H:%M'"
        )
    try:
        datetime.strptime("", time_format)
    except ValueError as error:
        if "directive" in str(error) or "stray" in str(error):
            raise ValueError(
                f"time_format must be a format of datetime.strptime, got {time_format!r}: {error}"
            ) from None
    return time_format


def stated_moment(text: str, time_format: str, unit: str) -> int | None:
    """Units from 1970 to a time in a stated form; None where it has another form, or a part that the unit would cut."""
    if time_format in DIGITS:
        if not _DECIMAL.fullmatch(text):
            return None
        exact = Fraction(text) * Fraction(10) ** (DIGITS[unit] - DIGITS[time_format])
    else:
        try:
            moment = datetime.strptime(text, time_format)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        exact = Fraction((moment - _EPOCH) // _MICROSECOND, 10**6) * 10 ** DIGITS[unit]
    return int(exact) if exact.denominator == 1 and abs(exact) <= _MOST else None


def fitting_formats(text: str) -> list[str]:
    """The common formats that read a text."""
    return [each for each in _COMMON_FORMATS if stated_moment(text, each, "us") is not None]


def iso_day(text: str, unit: str) -> int | None:
    """Units from 1970 to a day such as 2009-02-13; None for what is none."""
    if not _DAY.fullmatch(text):
        return None
    try:
        return 86400 * (date.fromisoformat(text) - date(1970, 1, 1)).days * 10 ** DIGITS[unit]
    except ValueError:
        return None


def iso_clock(text: str, unit: str) -> int | None:
    """Units from a day's begin in UTC to what follows its date: such as T23:31, " 23:31:30.25+01:00" or nothing.

    None where it is none of these, or has a part that the unit would cut.
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, hours, minutes = (
        int(match[part] or 0) for part in ("hour", "minute", "second", "hours", "minutes")
    )
    part, digits = (match["part"] or "").rstrip("0"), DIGITS[unit]
    if hour > 23 or minute > 59 or second > 59 or hours > 23 or minutes > 59 or len(part) > digits:
        return None
    offset = 3600 * hours + 60 * minutes
    seconds = 3600 * hour + 60 * minute + second - (-offset if match["sign"] == "-" else offset)
    return seconds * 10**digits + int(part.ljust(digits, "0") or 0)
