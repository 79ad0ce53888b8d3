"""Remedies in error messages about fields of a table, and warnings about skipped columns and dropped rows."""

import re
from collections.abc import Sequence
from typing import Any

from fastfedrec.core.interface import choose_words
from fastfedrec.core.warn import warn
from fastfedrec.data.ids import MISSING
from fastfedrec.datasets._fields import NULL, Field, Kind, fitting_formats, parse_field, stated_moment

_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_WHOLE = re.compile("[-+]?[0-9]+")
_UNITS = ("s", "ms", "us", "ns")  # the coarsest first


def remedy(role: str, text: str) -> str:
    """Return the remedy for an invalid field, as the last clause of an error message."""
    if role in ("user", "item") and text in ("", NULL):
        option = choose_words("pass missing_ids='drop'", "add --drop-missing-ids")
        return f"; {option} to drop rows without an id"
    if role == "value":
        if re.fullmatch(r"\s*[+-]?[0-9]+,[0-9]+\s*", text):
            return "; write a point instead of the decimal comma"
        option = choose_words("pass user= and item= alone", "pass --user and --item alone")
        return f"; correct or remove the row, or {option} to leave the values out"
    if role != "timestamp":
        return ""
    if stated_moment(text, "s", "ns") is not None:
        option = choose_words(
            "pass time_format='s' and a finer timestamp_unit", "add --time-format s and a finer --timestamp-unit"
        )
        return f"; {option} for seconds with a fraction"
    if _FLOAT.fullmatch(text):
        option = choose_words("pass the unit of these numbers as time_format", "give their unit with --time-format")
        return f"; {option}, such as 'ms' or 'ns'"
    if text.lower() in MISSING:
        return f"; write an empty field instead of {text} for a missing time"
    if unit := next((unit for unit in _UNITS if parse_field(Field("", Kind.ISO, unit=unit), text) is not None), None):
        # A time in whole seconds fits every unit, so the fault is a mix of forms in the column, which the rule states.
        option = choose_words(f"pass timestamp_unit={unit!r}", f"add --timestamp-unit {unit}")
        return "" if unit == "s" else f"; {option}"
    name = choose_words("time_format=", "--time-format ")
    if formats := " or ".join(f"{name}{time_format!r}" for time_format in fitting_formats(text)):
        return f"; {choose_words('pass', 'add')} {formats} for times in another form"
    option = choose_words(
        "pass the format of the times as time_format", "give the format of the times with --time-format"
    )
    return f"; {option}, such as '%d/%m/%Y %H:%M'"


def warn_of_unread_times(layout: Any, problem: str) -> None:
    """Warn that a column with a usual name of times is skipped."""
    warn(
        f"column {layout.named('timestamp')!r} has a usual name of times, but is skipped: {problem}; or name the "
        "columns to read",
    )


def warn_of_dropped(layout: Any, n_dropped: int, n_remaining: int) -> None:
    """Warn that rows without an id were dropped."""
    if n_dropped:
        names = " or no ".join(layout.named(role) for role in ("user", "item"))
        warn(
            f"{layout.path}: {n_dropped:,} of {n_dropped + n_remaining:,} rows have no {names} and were dropped",
        )


def check_float_ids(layout: Any, role: str, ids: Sequence[str]) -> None:
    """Raise for ids that were rounded to floats before they were written, and warn about other floats."""
    letters = "\n".join(ids)
    if not any(mark in letters for mark in ".eE"):
        return
    if not all(_FLOAT.fullmatch(text) and float(text).is_integer() for text in ids):
        return
    called = f"{layout.path}: column {layout.named(role)!r} ({role})"
    advice = "write the column as integers (Int64 in pandas)"
    if large := next((text for text in ids if not _WHOLE.fullmatch(text) and abs(float(text)) >= 2.0**53), None):
        raise ValueError(f"{called} has ids such as {large!r}, which floats cannot represent exactly; {advice}")
    if written := next((text for text in ids if not _WHOLE.fullmatch(text)), None):
        warn(
            f"{called} has ids such as {written!r}, which are read as text, not as whole numbers; {advice}",
        )
