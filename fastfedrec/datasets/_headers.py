"""Names of columns that publishers give to users, items, values and times, for headers that nobody need explain."""

from collections.abc import Sequence

from fastfedrec.core.numbers import show_names

#: By role, in small letters without what separates words.
_KNOWN = {
    "user": ("user", "userid", "uid", "reviewerid", "visitorid", "customerid"),
    "item": (
        "item", "itemid", "iid", "movieid", "businessid", "asin", "parentasin", "trackid", "artistid", "songid",
        "albumid", "bookid", "gameid", "appid", "productid", "newsid", "articleid", "videoid", "recipeid", "placeid",
        "locationid", "venueid", "poiid", "isbn", "animeid", "jokeid", "beerid", "courseid",
    ),
    "value": (
        "value", "rating", "bookrating", "stars", "overall", "score", "count", "plays", "playcount", "listencount",
        "weight",
    ),
    "timestamp": ("timestamp", "time", "date", "datetime", "unixreviewtime"),
}  # fmt: skip
_TYPES = ("token", "token_seq", "float", "float_seq")  # of RecBole's .inter files, behind a colon


def known_columns(names: Sequence[str]) -> dict[str, str]:
    """The column of each role that is known by its name.

    Parameters
    ----------
    names : sequence of str
        Of all columns.

    Returns
    -------
    dict of str to str
        From "user", "item", "value" and "timestamp" to one of `names`; a role is left out that no column has.

    Raises
    ------
    KeyError
        Two columns for one role.
    """
    found: dict[str, str] = {}
    plain = [_plain(name) for name in names]
    for role, known in _KNOWN.items():
        columns = [name for name, word in zip(names, plain, strict=True) if word in known]
        if len(set(columns)) < len(columns):
            raise KeyError(f"column {columns[0]!r} stands twice among {show_names(names)}; rename one of them")
        if len(columns) > 1:
            several = show_names(columns)
            raise KeyError(f"{role} may be any of the columns {several}; name one, as {role}={columns[0]!r}")
        if columns:
            found[role] = columns[0]
    return found


def _plain(name: str) -> str:
    stem, colon, kind = name.strip().rpartition(":")
    name = stem if colon and kind in _TYPES else name
    return "".join(letter for letter in name.lower() if letter not in "_- .")
