"""Twin of the table reader: one record at a time, with the csv module and Python's own numbers and dates."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction


def read_rows(text, separator, n_skip=0):
    """Return every record as a list of fields."""
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))[n_skip:]


def is_integer(field):
    """Return whether the text is Python's own spelling of the integer."""
    return bool(re.fullmatch("-?[0-9]+", field, re.ASCII)) and str(int(field)) == field and abs(int(field)) < 2**63


def ids(fields):
    return [int(field) for field in fields] if all(map(is_integer, fields)) else list(fields)


def seconds(fields):
    """Parse integer seconds or ISO 8601; an empty text gives None."""
    if all(not field or is_integer(field) for field in fields):
        return [int(field) if field else None for field in fields]
    return [from_iso(field) if field else None for field in fields]


def from_iso(field, digits=0):
    """Return a date and time in units of 10**-digits seconds, or "refused" if digits would be lost."""
    moment = datetime.fromisoformat(field)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    exact = Fraction((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), 10**6) * 10**digits
    return int(exact) if exact.denominator == 1 and abs(exact) < 2**63 else "refused"
