"""Loader of the MovieLens data sets in the formats that GroupLens publishes."""

import csv
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_choice, check_instance
from fastfedrec.core.files import check_path
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.datasets._fields import Field, Kind
from fastfedrec.datasets.columns import ColumnReader, find_duplicate, to_interactions
from fastfedrec.datasets.files import Files, refuse

__all__ = ["load_movielens", "load_movielens_items", "release_year", "zip_regions"]

_MAX_DIGITS = 18  # every number with at most 18 digits fits in int64
_NO_GENRES = ("", "(no genres listed)")
_YEAR = re.compile(r"\((\d{4})(?:\s*[-\u2013]\s*(?:\d{4})?)?\)\s*$")  # for a range of years, the first one
_DATE = re.compile(r"-(\d{4})$")

# Order of the 19 flags at the end of a line of u.item, from the README of MovieLens 100K.
_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True)
class _Features:
    """File of features: the id is the first field, followed by these columns; a column named "" is skipped."""

    member: str
    columns: tuple[str, ...]
    integers: tuple[str, ...] = ()
    genre_flags: tuple[str, ...] = ()  # further columns of 0 or 1; without them "genres" is a list joined by "|"

    @property
    def n_fields(self) -> int:
        return 1 + len(self.columns) + len(self.genre_flags)


@dataclass(frozen=True)
class _Layout:
    """Published format of the data."""

    ratings: str
    separator: str  # of the file of ratings
    feature_separator: str
    step: float  # between two consecutive ratings; also the smallest rating
    encoding: str
    users: _Features | None
    items: _Features
    headers: Mapping[str, str]  # header line by file, for files with a header


_MOVIES_DAT = _Features("movies.dat", ("title", "genres"))
_100K = _Layout(
    "u.data", "\t", "|", 1.0, "latin-1",
    _Features("u.user", ("age", "gender", "occupation", "zip_code"), integers=("age",)),
    _Features("u.item", ("title", "release_date", "", ""), genre_flags=_GENRES_100K),
    {},
)  # fmt: skip
_1M = _Layout(
    "ratings.dat", "::", "::", 1.0, "latin-1",
    _Features("users.dat", ("gender", "age", "occupation", "zip_code"), integers=("age", "occupation")),
    _MOVIES_DAT,
    {},
)  # fmt: skip
_10M = _Layout("ratings.dat", "::", "::", 0.5, "utf-8", None, _MOVIES_DAT, {})
_CSV = _Layout(  # 20M, 25M, 32M, latest and latest-small
    "ratings.csv", ",", ",", 0.5, "utf-8", None,
    _Features("movies.csv", ("title", "genres")),
    {"ratings.csv": "userId,movieId,rating,timestamp", "movies.csv": "movieId,title,genres"},
)  # fmt: skip
_RATINGS = ("u.data", "ratings.dat", "ratings.csv")


def load_movielens(
    path: str | os.PathLike[str],
    *,
    item_ids: str | Column | None = None,
    unlisted: str = "error",
) -> Interactions:
    """Load MovieLens 100K, 1M, 10M, 20M, 25M, 32M, latest or latest-small from the published files.

    The names of the files identify the version: ``u.data`` (100K), ``ratings.dat`` with ``users.dat`` (1M) or with
    ``tags.dat`` (10M), and ``ratings.csv`` (all others).

    Parameters
    ----------
    path : str or path-like
        Path of the downloaded zip, of the unpacked folder, or of its parent folder.
    item_ids : "published", array_like or None
        Catalogue of movies.  "published" lists all movies of the publisher's file of movies in its order, and is
        public.  An array_like lists ids of these movies.  None lists the movies with a rating.
    unlisted : {"error", "drop"}
        Treatment of a rating of a movie that is not in the catalogue.

    Returns
    -------
    Interactions
        Ratings as float32 values, from 1 to 5 in 100K and 1M, and from 0.5 to 5 in half steps in later sets.
        Timestamps are in seconds since 1970; an unknown time (0 in the file) becomes
        `fastfedrec.data.interactions.MISSING_TIMESTAMP`.  Ids are the publisher's integers.  Users have at least one
        rating, and so have items unless `item_ids` is given.

        Item features are ``title`` (with the year) and ``genres`` (a tuple of names, which may be empty).  100K also
        has ``release_date`` (a string such as "01-Jan-1995", empty if unknown).

        User features of 100K and 1M are ``gender`` ("F" or "M"), ``age``, ``occupation`` and ``zip_code``; later sets
        have none.  In 100K the age is in years and the occupation is a word.  MovieLens 1M codes age groups by their
        minimum age (1, 18, 25, 35, 45, 50, 56) and occupations by integers from 0 to 20, see its README.

    Raises
    ------
    FileNotFoundError
        A missing path, or a missing file of the data set.
    ValueError
        An unknown format, a damaged zip, or a malformed file.  The message names the file, the line and the reason.

    References
    ----------
    .. [1] F. M. Harper and J. A. Konstan, "The MovieLens datasets: history and context", ACM Transactions on
       Interactive Intelligent Systems 5(4), 2015.

    Examples
    --------
    >>> from fastfedrec.datasets import load_movielens
    >>> data = load_movielens("ml-1m.zip")  # doctest: +SKIP
    >>> data  # doctest: +SKIP
    <Interactions: 6,040 users x 3,706 items, 1,000,209 interactions with values>
    """
    files = Files(check_path("path", path), "MovieLens zip")
    folder, layout = _find_layout(files)
    users, items, stars, seconds = _read_ratings(files, folder, layout)
    seconds = seconds.astype(np.int64)
    # The published files write 0 for an unknown time.
    seconds[seconds == 0] = MISSING_TIMESTAMP
    movies = _read_rows(files, folder, layout, layout.items, "item")
    if item_ids is not None:
        # Every rated movie needs a row, even if the catalogue does not list it: a missing row means a damaged file.
        _check_listed(files, folder, layout, layout.items, "item", movies, np.unique(items), items)
    if isinstance(item_ids, str):
        check_choice("item_ids", item_ids, ("published",))
        item_ids = np.array(list(movies), dtype=np.int64)
    try:
        data = to_interactions(users, items, stars, seconds, duplicates="error", item_ids=item_ids, unlisted=unlisted)
    except ValueError:
        if duplicate_rows := find_duplicate(users, items):
            first, line = (row + _first_line(layout) for row in duplicate_rows)
            user, item = users[duplicate_rows[1]], items[duplicate_rows[1]]
            reason = f"user {user} rates item {item} a second time (first in line {first}); remove one"
            refuse(files.name(folder / layout.ratings), line, reason)
        raise
    if item_ids is None:
        _check_listed(files, folder, layout, layout.items, "item", movies, data.item_ids, items)
    data = data.with_features(item_features=_columns(files, folder, layout.items, movies, data.item_ids))
    if layout.users is None:
        return data
    user_rows = _read_rows(files, folder, layout, layout.users, "user")
    _check_listed(files, folder, layout, layout.users, "user", user_rows, data.user_ids, users)
    return data.with_features(user_features=_columns(files, folder, layout.users, user_rows, data.user_ids))


def load_movielens_items(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Load the movies of a MovieLens data set, for the parameter `item_features` of models.

    Parameters
    ----------
    path : str or path-like
        Path of the data set, see `load_movielens`.

    Returns
    -------
    dict of str to ndarray
        Columns of the publisher's file of movies, in its order, with rated and unrated movies.  ``item`` holds integer
        ids.  ``genres`` holds tuples of names, which may be empty.  ``year`` is the year of release from the title, or
        in 100K from the release date; None if neither contains a year.

    Raises
    ------
    FileNotFoundError
        A missing path, or a missing file of the data set.
    ValueError
        An unknown format, a damaged zip, or a malformed file.  The message names the file, the line and the reason.

    Examples
    --------
    >>> from fastfedrec import DPGram
    >>> from fastfedrec.datasets import load_movielens_items
    >>> movies = load_movielens_items("ml-1m.zip")  # doctest: +SKIP
    >>> model = DPGram(item_features=movies)  # doctest: +SKIP
    """
    files = Files(check_path("path", path), "MovieLens zip")
    folder, layout = _find_layout(files)
    movies = _read_rows(files, folder, layout, layout.items, "item")
    ids = np.array(list(movies), dtype=np.int64)
    columns = _columns(files, folder, layout.items, movies, ids)
    dates = columns.get("release_date", np.full(len(ids), ""))
    years = [release_year(title, date) for title, date in zip(columns["title"].tolist(), dates.tolist(), strict=True)]
    return {"item": ids, "genres": columns["genres"], "year": np.fromiter(years, dtype=object, count=len(ids))}


def release_year(title: str, date: str = "") -> int | None:
    """Return the year in which a movie was released.

    Parameters
    ----------
    title : str
        Title in the format of MovieLens, usually with the year in parentheses at the end.  For a range of years, the
        first one counts.
    date : str
        Release date in the format of MovieLens 100K, for titles without a year.

    Returns
    -------
    int or None
        Year of release, or None if neither argument contains a year.

    Examples
    --------
    >>> from fastfedrec.datasets.movielens import release_year
    >>> release_year("Heat (1995)"), release_year("unknown", "14-Feb-1997"), release_year("Babylon 5")
    (1995, 1997, None)
    """
    match = _YEAR.search(title) or _DATE.search(date)
    return int(match[1]) if match else None


def zip_regions(interactions: Interactions) -> NDArray[np.str_]:
    """Return the first character of each user's ZIP code, which in MovieLens 1M is a digit for one of ten regions.

    Parameters
    ----------
    interactions : Interactions
        Interactions with the user feature ``zip_code``, which `load_movielens` reads for 100K and 1M.

    Returns
    -------
    ndarray of shape (n_users,), str
        First characters in the order of `user_ids`; Canadian codes in 100K begin with a letter.

    Raises
    ------
    ValueError
        The feature is missing, or a ZIP code is empty.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.datasets import zip_regions
    >>> data = Interactions.from_arrays([1, 2], [10, 10])
    >>> zip_regions(data.with_features(user_features={"zip_code": ["48067", "70072-1234"]})).tolist()
    ['4', '7']
    """
    check_instance("interactions", interactions, Interactions, "use load_movielens")
    codes = interactions.user_features.get("zip_code")
    if codes is None:
        raise ValueError(
            f"interactions must have the user feature 'zip_code', got {list(interactions.user_features)}; "
            "MovieLens 100K and 1M have it"
        )
    codes = codes.astype(np.str_)
    if empty := int((codes == "").sum()):
        raise ValueError(
            f"zip_code must not be empty, got {empty} empty codes for {len(codes)} users; fill them in or drop users"
        )
    return codes.astype("U1")


def _find_layout(files: Files) -> tuple[PurePosixPath, _Layout]:
    """Return the folder of the only file of ratings, and the layout that the names of the files identify."""
    rating_files = sorted(member for member in files.members if member.name in _RATINGS)
    if len(rating_files) != 1:
        got = f"{len(rating_files)} of them: {', '.join(map(str, rating_files))}; pass one folder"
        got = got if rating_files else "none of them; for another table, unpack its archive and pass the table's file"
        raise ValueError(f"path {str(files.path)!r} must hold one of {', '.join(_RATINGS)}, got {got}")
    folder, name = rating_files[0].parent, rating_files[0].name
    if name != "ratings.dat":
        return folder, _CSV if name == "ratings.csv" else _100K
    if folder / "users.dat" in files.members:
        return folder, _1M
    if folder / "tags.dat" in files.members:
        return folder, _10M
    raise FileNotFoundError(
        f"{files.name(folder / 'users.dat')} is missing (a file of MovieLens 1M; MovieLens 10M has tags.dat instead); "
        "unpack or download the data again"
    )


# ---- ratings ------------------------------------------------------------------------------------------------------


def _read_ratings(files: Files, folder: PurePosixPath, layout: _Layout) -> list[np.ndarray]:
    """Return the columns user, item, rating and timestamp."""
    stars = "an integer from 1 to 5" if layout.step == 1.0 else "0.5 to 5 in half steps"
    whole = "a whole number"
    fields = [
        Field("user", Kind.ID, whole, low=0),
        Field("item", Kind.ID, whole, low=0),
        Field("rating", Kind.DECIMAL, stars, low=layout.step, high=5.0, step=layout.step),
        Field("timestamp", Kind.WHOLE, whole, low=0),
    ]
    reader = ColumnReader(fields, layout.separator)
    member = folder / layout.ratings
    with files.open(member) as stream:
        if layout.ratings in layout.headers:
            line = stream.readline().decode("utf-8-sig", errors="replace").rstrip("\r\n")
            _check_header(files, folder, layout, layout.ratings, line)
        reader.read(stream, files.name(member), first_line=_first_line(layout))
    return reader.columns()


def _check_header(files: Files, folder: PurePosixPath, layout: _Layout, member: str, line: str) -> None:
    header = layout.headers[member]
    if line != header:
        got = repr(line[:80]) if line else "an empty line"
        refuse(files.name(folder / member), 1, f"expected the header {header!r}, got {got}; download the data again")


def _first_line(layout: _Layout) -> int:
    """Return the line number of the first rating."""
    return 1 + (layout.ratings in layout.headers)


# ---- features -----------------------------------------------------------------------------------------------------


def _is_natural(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= _MAX_DIGITS


def _read_rows(
    files: Files, folder: PurePosixPath, layout: _Layout, table: _Features, axis: str
) -> dict[int, list[str]]:
    """Return the fields by id, in the order of the file."""
    file = files.name(folder / table.member)
    rows: dict[int, list[str]] = {}
    for number, fields in _split_lines(files, folder, layout, table):
        if not _is_natural(fields[0]):
            refuse(file, number, f"{axis} id must be a whole number, got {fields[0][:40]!r}")
        if int(fields[0]) in rows:
            refuse(file, number, f"{axis} {fields[0]} has a second row; remove one")
        for name, field in zip(table.columns, fields[1:], strict=False):
            if name in table.integers and not _is_natural(field):
                refuse(file, number, f"{name} must be a whole number, got {field[:40]!r}")
        if table.genre_flags and not set(fields[-len(table.genre_flags) :]) <= {"0", "1"}:
            refuse(file, number, "every genre flag must be 0 or 1; download the data again")
        rows[int(fields[0])] = fields[1:]
    return rows


def _check_listed(
    files: Files,
    folder: PurePosixPath,
    layout: _Layout,
    table: _Features,
    axis: str,
    rows: Mapping[int, list[str]],
    ids: np.ndarray,
    rated: np.ndarray,
) -> None:
    """Raise unless each id has a row; `rated` holds the id of each rating."""
    for id_ in ids.tolist():
        if id_ not in rows:
            line = int(np.flatnonzero(rated == id_)[0]) + _first_line(layout)
            reason = f"{axis} {id_} has no row in {table.member}; download the data again"
            refuse(files.name(folder / layout.ratings), line, reason)


def _columns(
    files: Files, folder: PurePosixPath, table: _Features, rows: Mapping[int, list[str]], ids: np.ndarray
) -> Mapping[str, np.ndarray]:
    """Return the feature columns in the order of `ids`."""
    for id_ in ids.tolist():
        if id_ not in rows:
            raise ValueError(
                f"item_ids must list published movies, got {id_!r}, which has no row in "
                f"{files.name(folder / table.member)}; remove it"
            )
    selected_rows = [rows[id_] for id_ in ids.tolist()]
    columns = {}
    for position, name in enumerate(table.columns):
        column = [fields[position] for fields in selected_rows]
        if name == "genres":
            genres = (() if field in _NO_GENRES else tuple(field.split("|")) for field in column)
            columns[name] = np.fromiter(genres, dtype=object, count=len(selected_rows))
        elif name:
            columns[name] = np.array(column, dtype=np.int64 if name in table.integers else np.str_)
    if table.genre_flags:
        n = len(table.genre_flags)
        flags = (zip(table.genre_flags, fields[-n:], strict=True) for fields in selected_rows)
        genres = (tuple(genre for genre, flag in pairs if flag == "1") for pairs in flags)
        columns["genres"] = np.fromiter(genres, object, count=len(selected_rows))
    return columns


def _split_lines(
    files: Files, folder: PurePosixPath, layout: _Layout, table: _Features
) -> Iterator[tuple[int, list[str]]]:
    member = folder / table.member
    lines = files.read_text(member, layout.encoding).split("\n")[:-1]
    start = 1
    if table.member in layout.headers:
        _check_header(files, folder, layout, table.member, lines[0] if lines else "")
        lines, start = lines[1:], 2
    for number, line in enumerate(lines, start=start):
        if layout.feature_separator == ",":
            fields = next(csv.reader([line]), [])  # a title with commas is in quotes
        else:
            fields = line.split(layout.feature_separator)
        if len(fields) != table.n_fields:
            expected = f"{table.n_fields} fields separated by {layout.feature_separator!r}"
            refuse(files.name(member), number, f"expected {expected}, got {len(fields)}: {line[:80]!r}")
        yield number, fields
