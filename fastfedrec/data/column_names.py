"""Names of columns that publishers give to users, items, values and times, for headers that nobody need explain."""

from collections.abc import Sequence

from fastfedrec.core.numbers import show_names

__all__ = ["known_columns", "split_type"]

#: By role, in small letters without what separates words.
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
_TYPES = ("token", "token_seq", "float", "float_seq")  # of RecBole's .inter files, behind a colon


def known_columns(names: Sequence[str], roles: Sequence[str] = tuple(_KNOWN)) -> dict[str, str]:
    """The column of each role that is known by its name.

    Parameters
    ----------
    names : sequence of str
        Of all columns.
    roles : sequence of str
        Those that are looked for, of "user", "item", "value" and "timestamp".

    Returns
    -------
    dict of str to str
        From roles to one of `names`; a role is left out that no column has.

    Raises
    ------
    KeyError
        Two columns for one role.
    """
    found: dict[str, str] = {}
    plain = [_plain(name) for name in names]
    for role in roles:
        columns = [name for name, word in zip(names, plain, strict=True) if word in _KNOWN[role]]
        if len(set(columns)) < len(columns):
            raise KeyError(f"column {columns[0]!r} stands twice among {show_names(names)}; rename one of them")
        if len(columns) > 1:
            several = show_names(columns)
            raise KeyError(f"{role} may be any of the columns {several}; name one, as {role}={columns[0]!r}")
        if columns:
            found[role] = columns[0]
    return found


def split_type(name: str) -> tuple[str, str]:
    """What a column is called, and which type the header gives it.

    Parameters
    ----------
    name : str
        As "genre:token_seq", or without a type.

    Returns
    -------
    tuple of str and str
        As ("genre", "token_seq"); the second is empty where there is none.
    """
    stem, colon, kind = name.strip().rpartition(":")
    return (stem, kind) if colon and kind in _TYPES else (name, "")


def _plain(name: str) -> str:
    return "".join(letter for letter in split_type(name)[0].lower() if letter not in "_- .")
