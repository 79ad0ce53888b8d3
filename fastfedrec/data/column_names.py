"""Usual names of columns of users, items, values and times in published data sets."""

from collections.abc import Sequence

from fastfedrec.core.numbers import show_names

__all__ = ["known_columns", "split_type"]

#: Names by role, in lower case and without the characters that separate words.
_KNOWN = {
    "user": ("user", "userid", "uid", "reviewerid", "visitorid", "customerid"),
    "item": (
        "item", "itemid", "iid", "movieid", "businessid", "asin", "parentasin", "trackid", "artistid", "songid",
        "albumid", "bookid", "gameid", "appid", "productid", "newsid", "articleid", "videoid", "recipeid", "placeid",
        "locationid", "venueid", "poiid", "isbn", "animeid", "jokeid", "beerid", "courseid", "filmid", "showid", "sku",
        "stockcode",
    ),
    "value": (
        "value", "rating", "bookrating", "stars", "overall", "score", "count", "plays", "playcount", "listencount",
        "weight", "quantity",
    ),
    "timestamp": ("timestamp", "time", "date", "datetime", "unixreviewtime", "invoicedate"),
}  # fmt: skip
_TYPES = ("token", "token_seq", "float", "float_seq")  # in the headers of RecBole's .inter files, after a colon


def known_columns(names: Sequence[str], roles: Sequence[str] = tuple(_KNOWN), *, source: str = "") -> dict[str, str]:
    """Return the column with a usual name for each role, or raise a KeyError if a role has two such columns.

    `source` is the file or table in the error.
    """
    place = f" in {source}" if source else ""
    columns_by_role: dict[str, str] = {}
    plain = [_plain(name) for name in names]
    for role in roles:
        columns = [name for name, word in zip(names, plain, strict=True) if word in _KNOWN[role]]
        if len(set(columns)) < len(columns):
            raise KeyError(
                f"column {columns[0]!r} must occur once among {show_names(names)}{place}; rename one of them"
            )
        if len(columns) > 1:
            several = show_names(columns)
            raise KeyError(
                f"{role} must be one column, got {several}{place}; name one, for example {role}={columns[0]!r}"
            )
        if columns:
            columns_by_role[role] = columns[0]
    return columns_by_role


def split_type(name: str) -> tuple[str, str]:
    """Split a header such as "genre:token_seq" into the name and the type, which may be empty."""
    stem, colon, kind = name.strip().rpartition(":")
    return (stem, kind) if colon and kind in _TYPES else (name, "")


def _plain(name: str) -> str:
    return "".join(letter for letter in split_type(name)[0].lower() if letter not in "_- .")
