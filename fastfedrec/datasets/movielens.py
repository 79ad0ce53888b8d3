"""Reader of the MovieLens files as GroupLens publishes them: one table of layouts, one fast and one explaining parser.

Ratings are parsed in bulk; only where the bulk check fails does a line-by-line scan look for the line to name.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np

from fastfedrec.interactions import MISSING_TIMESTAMP, Interactions

_MAX_DIGITS = 18  # every such number fits in int64
_RATING_COLUMNS = ("user", "item", "rating", "timestamp")

# The order of the 19 flags that end a line of u.item, as the README of MovieLens 100K gives it.
_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True)
class _Features:
    """A file of features: the id comes first, then these columns; a column named "" is dropped."""

    member: str
    separator: str
    columns: tuple[str, ...]
    integers: tuple[str, ...] = ()
    genre_flags: tuple[str, ...] = ()  # further columns, 0 or 1 each; otherwise "genres" is a list joined by "|"

    @property
    def n_fields(self) -> int:
        return 1 + len(self.columns) + len(self.genre_flags)


@dataclass(frozen=True)
class _Layout:
    """One published form of the data.  The name of its ratings file tells it from the others."""

    ratings: str
    separator: str
    users: _Features
    items: _Features


_LAYOUTS = (
    _Layout(
        "u.data",
        "\t",
        _Features("u.user", "|", ("age", "gender", "occupation", "zip_code"), integers=("age",)),
        _Features("u.item", "|", ("title", "release_date", "", ""), genre_flags=_GENRES_100K),
    ),
    _Layout(
        "ratings.dat",
        "::",
        _Features("users.dat", "::", ("gender", "age", "occupation", "zip_code"), integers=("age", "occupation")),
        _Features("movies.dat", "::", ("title", "genres")),
    ),
)


def load_movielens(path: str | os.PathLike) -> Interactions:
    """Read MovieLens 100K or 1M from the publisher's own files.

    Which of the two it is, is told by the member files: ``u.data`` or ``ratings.dat``.

    Parameters
    ----------
    path : str or path-like
        The zip as downloaded, the unpacked folder, or the folder that holds it.

    Returns
    -------
    Interactions
        Ratings 1 to 5 as float32 values, timestamps in seconds since 1970, where 0 stands for "not known" and becomes
        `fastfedrec.interactions.MISSING_TIMESTAMP`.  Users and items are those with a rating, under the publisher's
        integer ids.

        User features: ``gender`` ("F" or "M"), ``age``, ``occupation``, ``zip_code``.  MovieLens 1M codes age groups
        by their lowest age (1, 18, 25, 35, 45, 50, 56) and occupations by an integer from 0 to 20, explained in its
        README; in 100K the age is in years and the occupation a word.

        Item features: ``title`` (with the year), ``genres`` (a tuple of names), and in 100K ``release_date`` (a string
        such as "01-Jan-1995", empty where it is not known).

    Raises
    ------
    FileNotFoundError
        Nothing at `path`, or a member file is missing.
    ValueError
        Not one of the two layouts, a damaged zip, or a malformed file; the file, line and reason are named.

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
    files, layout = _open(Path(path))
    ratings = _parse_ratings(files, layout)
    users, items, stars, seconds = ratings.T
    seconds = np.where(seconds == 0, MISSING_TIMESTAMP, seconds)
    try:
        data = Interactions.from_arrays(users, items, stars.astype(np.float32), seconds, duplicates="error")
    except ValueError:
        _refuse_duplicate(files, layout, users, items)
        raise
    return data.with_features(
        user_features=_read_features(files, layout, layout.users, "user", data.user_ids, users),
        item_features=_read_features(files, layout, layout.items, "item", data.item_ids, items),
    )


# ---- files --------------------------------------------------------------------------------------------------------


class _Files:
    """The member files of one data set, by name, from a folder or inside a zip."""

    def __init__(self, path: Path, folder: PurePosixPath, in_zip: bool):
        self._path, self._folder, self._in_zip = path, folder, in_zip

    def name(self, member: str) -> str:
        return f"{self._path}: {self._folder / member}" if self._in_zip else str(self._path / self._folder / member)

    def read(self, member: str) -> bytes:
        try:
            if not self._in_zip:
                return (self._path / self._folder / member).read_bytes()
            with zipfile.ZipFile(self._path) as archive:
                return archive.read(str(self._folder / member))
        except (KeyError, FileNotFoundError):
            raise FileNotFoundError(f"{self.name(member)} is missing; unpack or download the data again") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"{self.name(member)} cannot be unpacked ({error}); download the zip again") from error


def _open(path: Path) -> tuple[_Files, _Layout]:
    """Find the one ratings file at or below `path`, and with it the layout."""
    if not path.exists():
        raise FileNotFoundError(f"path {str(path)!r} does not exist; pass the MovieLens zip or its unpacked folder")
    if path.is_dir():
        members = [PurePosixPath(p.relative_to(path).as_posix()) for p in (*path.glob("*"), *path.glob("*/*"))]
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                members = [PurePosixPath(name) for name in archive.namelist()]
        except zipfile.BadZipFile as error:
            raise ValueError(f"path {str(path)!r} is no readable zip ({error}); download it again") from error
    by_name = {layout.ratings: layout for layout in _LAYOUTS}
    found = sorted(member for member in members if member.name in by_name)
    if len(found) != 1:
        got = f"{len(found)} of them: {', '.join(map(str, found))}; pass one folder" if found else "neither"
        raise ValueError(f"path {str(path)!r} must hold one of {' or '.join(by_name)}, got {got}")
    return _Files(path, found[0].parent, not path.is_dir()), by_name[found[0].name]


def _refuse(files: _Files, member: str, line: int, reason: str) -> NoReturn:
    raise ValueError(f"{files.name(member)}, line {line}: {reason}")


def _with_unix_line_ends(text: bytes) -> bytes:
    text = text.replace(b"\r\n", b"\n") if b"\r\n" in text else text
    return text if text.endswith(b"\n") or not text else text + b"\n"


# ---- ratings ------------------------------------------------------------------------------------------------------


def _parse_ratings(files: _Files, layout: _Layout) -> np.ndarray:
    """Rows of (user, item, rating, timestamp), int64."""
    text = _with_unix_line_ends(files.read(layout.ratings))
    separator = layout.separator.encode()
    if _is_well_formed(text, separator):
        rows = np.fromstring(text.replace(separator, b" "), dtype=np.int64, sep=" ").reshape(-1, len(_RATING_COLUMNS))
        if rows[:, 2].min() >= 1 and rows[:, 2].max() <= 5:
            return rows
    _refuse_first_bad_rating(files, layout, text)


def _is_well_formed(text: bytes, separator: bytes) -> bool:
    """Whether every line is four digit strings between separators, so that a bulk parse can be trusted."""
    pattern = np.frombuffer(separator * (len(_RATING_COLUMNS) - 1) + b"\n", dtype=np.uint8)
    data = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero((data < ord("0")) | (data > ord("9")))
    if not len(ends) or len(ends) % len(pattern):
        return False
    widths = np.diff(ends, prepend=-1).reshape(-1, len(pattern)) - 1  # digits before each byte that is none
    follows = np.arange(len(pattern)) % len(separator) != 0  # bytes inside a separator have no digits before them
    return bool(
        (data[ends].reshape(-1, len(pattern)) == pattern).all()
        and (widths[:, follows] == 0).all()
        and (widths[:, ~follows] > 0).all()
        and widths.max() <= _MAX_DIGITS
    )


def _refuse_first_bad_rating(files: _Files, layout: _Layout, text: bytes) -> NoReturn:
    lines = text.decode("latin-1").split("\n")[:-1]
    if not lines:
        _refuse(files, layout.ratings, 1, "the file is empty")
    for number, line in enumerate(lines, start=1):
        fields = line.split(layout.separator)
        if len(fields) != len(_RATING_COLUMNS):
            wanted = f"{len(_RATING_COLUMNS)} fields ({', '.join(_RATING_COLUMNS)}) separated by {layout.separator!r}"
            _refuse(files, layout.ratings, number, f"expected {wanted}, got {len(fields)}: {line[:80]!r}")
        for column, field in zip(_RATING_COLUMNS, fields, strict=True):
            if column == "rating" and field not in ("1", "2", "3", "4", "5"):
                _refuse(files, layout.ratings, number, f"rating must be an integer from 1 to 5, got {field[:40]!r}")
            if not _is_natural(field):
                _refuse(files, layout.ratings, number, f"{column} must be a whole number, got {field[:40]!r}")
    raise AssertionError("the bulk check and the scan disagree")


def _is_natural(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= _MAX_DIGITS


def _refuse_duplicate(files: _Files, layout: _Layout, users: np.ndarray, items: np.ndarray) -> None:
    order = np.lexsort((items, users))  # stable: of two equal pairs the later line comes second
    again = (np.diff(users[order]) == 0) & (np.diff(items[order]) == 0)
    if again.any():
        line = order[1:][again].min()
        first = int(np.flatnonzero((users == users[line]) & (items == items[line]))[0]) + 1
        _refuse(
            files, layout.ratings, int(line) + 1,
            f"user {users[line]} rates item {items[line]} a second time (first in line {first}); remove one",
        )  # fmt: skip


# ---- features -----------------------------------------------------------------------------------------------------


def _read_features(
    files: _Files, layout: _Layout, table: _Features, axis: str, ids: np.ndarray, rated: np.ndarray
) -> Mapping[str, np.ndarray]:
    """One column per feature, aligned with `ids`; `rated` holds the id of each line of the ratings file."""
    rows: dict[int, list[str]] = {}
    for number, fields in _split_lines(files, table):
        if not _is_natural(fields[0]):
            _refuse(files, table.member, number, f"{axis} id must be a whole number, got {fields[0][:40]!r}")
        if int(fields[0]) in rows:
            _refuse(files, table.member, number, f"{axis} {fields[0]} has a second row; remove one")
        for name, field in zip(table.columns, fields[1:], strict=False):
            if name in table.integers and not _is_natural(field):
                _refuse(files, table.member, number, f"{name} must be a whole number, got {field[:40]!r}")
        if table.genre_flags and not set(fields[-len(table.genre_flags) :]) <= {"0", "1"}:
            _refuse(files, table.member, number, "every genre flag must be 0 or 1")
        rows[int(fields[0])] = fields[1:]
    for id_ in ids.tolist():
        if id_ not in rows:
            line = int(np.flatnonzero(rated == id_)[0]) + 1
            _refuse(files, layout.ratings, line, f"{axis} {id_} has no row in {table.member}")
    kept = [rows[id_] for id_ in ids.tolist()]
    columns = {}
    for position, name in enumerate(table.columns):
        column = [fields[position] for fields in kept]
        if name == "genres":
            columns[name] = np.fromiter((tuple(field.split("|")) for field in column), dtype=object, count=len(kept))
        elif name:
            columns[name] = np.array(column, dtype=np.int64 if name in table.integers else np.str_)
    if table.genre_flags:
        n = len(table.genre_flags)
        flags = (zip(table.genre_flags, fields[-n:], strict=True) for fields in kept)
        columns["genres"] = np.fromiter((tuple(g for g, on in f if on == "1") for f in flags), object, count=len(kept))
    return columns


def _split_lines(files: _Files, table: _Features) -> Iterator[tuple[int, list[str]]]:
    text = _with_unix_line_ends(files.read(table.member)).decode("latin-1")
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        fields = line.split(table.separator)
        if len(fields) != table.n_fields:
            _refuse(
                files, table.member, number,
                f"expected {table.n_fields} fields separated by {table.separator!r}, got {len(fields)}: {line[:80]!r}",
            )  # fmt: skip
        yield number, fields
