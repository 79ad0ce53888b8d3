"""Reader of the MovieLens files as GroupLens publishes them: one table of layouts, one parser for all."""

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

_MAX_DIGITS = 18  # every such number fits in int64
_NO_GENRES = ("", "(no genres listed)")
_YEAR = re.compile(r"\((\d{4})(?:\s*[-\u2013]\s*(?:\d{4})?)?\)\s*$")  # of a series, the first
_DATE = re.compile(r"-(\d{4})$")

# The order of the 19 flags that end a line of u.item, as the README of MovieLens 100K gives it.
_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True)
class _Features:
    """A file of features: the id comes first, then these columns; a column named "" is dropped."""

    member: str
    columns: tuple[str, ...]
    integers: tuple[str, ...] = ()
    genre_flags: tuple[str, ...] = ()  # further columns, 0 or 1 each; otherwise "genres" is a list joined by "|"

    @property
    def n_fields(self) -> int:
        return 1 + len(self.columns) + len(self.genre_flags)


@dataclass(frozen=True)
class _Layout:
    """One published form of the data."""

    ratings: str
    separator: str  # of the ratings
    feature_separator: str
    step: float  # between two ratings, and the lowest
    encoding: str
    users: _Features | None
    items: _Features
    headers: Mapping[str, str]  # first line of the files that have one


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
    """Read MovieLens 100K, 1M, 10M, 20M, 25M, 32M, latest or latest-small from the publisher's own files.

    Which of them it is, is told by the member files: ``u.data`` (100K), ``ratings.dat`` with ``users.dat`` (1M) or with
    ``tags.dat`` (10M), ``ratings.csv`` (all others).

    Parameters
    ----------
    path : str or path-like
        The zip as downloaded, the unpacked folder, or the folder that holds it.
    item_ids : "published", array_like or None
        The catalogue: "published" is all that the publisher's file of movies lists, in its order, and is public; an
        array_like is a list of these movies' ids.  None takes those that have a rating.
    unlisted : {"error", "drop"}
        What becomes of a rating whose movie the catalogue does not list.

    Returns
    -------
    Interactions
        Ratings as float32 values: 1 to 5, or from 10M on 0.5 to 5 in half steps.  Timestamps in seconds since 1970,
        where 0 stands for "not known" and becomes `fastfedrec.data.interactions.MISSING_TIMESTAMP`.  Users are those
        with a rating, and so are items unless `item_ids` is given, under the publisher's integer ids.

        Item features: ``title`` (with the year), ``genres`` (a tuple of names, empty where none is listed), and in 100K
        ``release_date`` (a string such as "01-Jan-1995", empty where it is not known).

        User features in 100K and 1M, which later sets do not have: ``gender`` ("F" or "M"), ``age``, ``occupation``,
        ``zip_code``.  MovieLens 1M codes age groups by their lowest age (1, 18, 25, 35, 45, 50, 56) and occupations by
        an integer from 0 to 20, explained in its README; in 100K the age is in years and the occupation a word.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`, or a member file is missing.
    ValueError
        None of these layouts, a damaged zip, or a malformed file; the file, line and reason are named.

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
    seconds[seconds == 0] = MISSING_TIMESTAMP
    movies = _read_rows(files, folder, layout, layout.items, "item")
    if item_ids is not None:  # what is rated and not listed is no reason to overlook a missing row
        _check_listed(files, folder, layout, layout.items, "item", movies, np.unique(items), items)
    if isinstance(item_ids, str):
        check_choice("item_ids", item_ids, ("published",))
        item_ids = np.array(list(movies), dtype=np.int64)
    try:
        data = to_interactions(users, items, stars, seconds, duplicates="error", item_ids=item_ids, unlisted=unlisted)
    except ValueError:
        if found := find_duplicate(users, items):
            first, line = (row + _first_line(layout) for row in found)
            again = f"user {users[found[1]]} rates item {items[found[1]]} a second time (first in line {first})"
            refuse(files.name(folder / layout.ratings), line, f"{again}; remove one")
        raise
    if item_ids is None:
        _check_listed(files, folder, layout, layout.items, "item", movies, data.item_ids, items)
    data = data.with_features(item_features=_columns(files, folder, layout.items, movies, data.item_ids))
    if layout.users is None:
        return data
    people = _read_rows(files, folder, layout, layout.users, "user")
    _check_listed(files, folder, layout, layout.users, "user", people, data.user_ids, users)
    return data.with_features(user_features=_columns(files, folder, layout.users, people, data.user_ids))


def load_movielens_items(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read what a MovieLens data set says of its movies, as the parameter `item_features` of models takes it.

    Parameters
    ----------
    path : str or path-like
        As for `load_movielens`.

    Returns
    -------
    dict of str to ndarray
        Columns of the publisher's file of movies, in its order, whether they are rated or not.  ``item``: the integer
        ids.  ``genres``: a tuple of names each, empty where none is listed.  ``year``: of the release, from the title
        or in 100K from the date; None where neither has one.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`, or a member file is missing.
    ValueError
        None of the layouts, a damaged zip, or a malformed file; the file, line and reason are named.

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
    """The year in which a movie came out.

    Parameters
    ----------
    title : str
        As MovieLens has it, mostly with the year in brackets at its end; of a series, the first counts.
    date : str
        As MovieLens 100K has it beside the title, for titles without a year.

    Returns
    -------
    int or None
        None where neither has one.

    Examples
    --------
    >>> from fastfedrec.datasets.movielens import release_year
    >>> release_year("Heat (1995)"), release_year("unknown", "14-Feb-1997"), release_year("Babylon 5")
    (1995, 1997, None)
    """
    found = _YEAR.search(title) or _DATE.search(date)
    return int(found[1]) if found else None


def zip_regions(interactions: Interactions) -> NDArray[np.str_]:
    """The first character of each user's ZIP code: in MovieLens 1M a digit for each of ten regions.

    Parameters
    ----------
    interactions : Interactions
        With the user feature ``zip_code``, as `load_movielens` gives it for 100K and 1M.

    Returns
    -------
    ndarray of shape (n_users,), str
        Aligned with `user_ids`; Canadian codes in 100K begin with a letter.

    Raises
    ------
    ValueError
        No ZIP codes, or an empty one.

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
        raise ValueError(f"zip_code is empty for {empty} of {len(codes)} users; give them one, or leave them out")
    return codes.astype("U1")


def _find_layout(files: Files) -> tuple[PurePosixPath, _Layout]:
    """The folder of the one ratings file, and what is told by its name and its neighbours."""
    found = sorted(member for member in files.members if member.name in _RATINGS)
    if len(found) != 1:
        got = f"{len(found)} of them: {', '.join(map(str, found))}; pass one folder"
        got = got if found else "none of them; unpack an archive of another table first, and name the table's file"
        raise ValueError(f"path {str(files.path)!r} must hold one of {', '.join(_RATINGS)}, got {got}")
    folder, name = found[0].parent, found[0].name
    if name != "ratings.dat":
        return folder, _CSV if name == "ratings.csv" else _100K
    if folder / "users.dat" in files.members:
        return folder, _1M
    if folder / "tags.dat" in files.members:
        return folder, _10M
    raise FileNotFoundError(
        f"{files.name(folder / 'users.dat')} is missing (a part of MovieLens 1M; 10M is told from it by its tags.dat); "
        "unpack or download the data again"
    )


# ---- ratings ------------------------------------------------------------------------------------------------------


def _read_ratings(files: Files, folder: PurePosixPath, layout: _Layout) -> list[np.ndarray]:
    """Columns user, item, rating, timestamp."""
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
    wanted = layout.headers[member]
    if line != wanted:
        got = repr(line[:80]) if line else "nothing"
        refuse(files.name(folder / member), 1, f"expected the header {wanted!r}, got {got}")


def _first_line(layout: _Layout) -> int:
    """The number of the first rating's line."""
    return 1 + (layout.ratings in layout.headers)


# ---- features -----------------------------------------------------------------------------------------------------


def _is_natural(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= _MAX_DIGITS


def _read_rows(
    files: Files, folder: PurePosixPath, layout: _Layout, table: _Features, axis: str
) -> dict[int, list[str]]:
    """The fields of each id, in the order of the file."""
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
            refuse(file, number, "every genre flag must be 0 or 1")
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
    """Each of `ids` must have a row; `rated` holds the id of each rating."""
    for id_ in ids.tolist():
        if id_ not in rows:
            line = int(np.flatnonzero(rated == id_)[0]) + _first_line(layout)
            refuse(files.name(folder / layout.ratings), line, f"{axis} {id_} has no row in {table.member}")


def _columns(
    files: Files, folder: PurePosixPath, table: _Features, rows: Mapping[int, list[str]], ids: np.ndarray
) -> Mapping[str, np.ndarray]:
    """One column per feature, aligned with `ids`."""
    for id_ in ids.tolist():
        if id_ not in rows:
            raise ValueError(
                f"item_ids lists {id_!r}, which has no row in {files.name(folder / table.member)}; leave it out"
            )
    kept = [rows[id_] for id_ in ids.tolist()]
    columns = {}
    for position, name in enumerate(table.columns):
        column = [fields[position] for fields in kept]
        if name == "genres":
            genres = (() if field in _NO_GENRES else tuple(field.split("|")) for field in column)
            columns[name] = np.fromiter(genres, dtype=object, count=len(kept))
        elif name:
            columns[name] = np.array(column, dtype=np.int64 if name in table.integers else np.str_)
    if table.genre_flags:
        n = len(table.genre_flags)
        flags = (zip(table.genre_flags, fields[-n:], strict=True) for fields in kept)
        columns["genres"] = np.fromiter((tuple(g for g, on in f if on == "1") for f in flags), object, count=len(kept))
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
            fields = next(csv.reader([line]), [])  # titles with commas are quoted
        else:
            fields = line.split(layout.feature_separator)
        if len(fields) != table.n_fields:
            wanted = f"{table.n_fields} fields separated by {layout.feature_separator!r}"
            refuse(files.name(member), number, f"expected {wanted}, got {len(fields)}: {line[:80]!r}")
        yield number, fields
