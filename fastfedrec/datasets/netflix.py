"""Loader of the Netflix Prize data in the original format and in the format of Kaggle."""

import os
import re
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_choice
from fastfedrec.core.files import check_path
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets._fields import Field, Kind
from fastfedrec.datasets.columns import ColumnReader, find_duplicate, to_interactions
from fastfedrec.datasets.files import Files, refuse

__all__ = ["load_netflix"]

_KAGGLE = tuple(f"combined_data_{part}.txt" for part in (1, 2, 3, 4))
_TITLES = ("movie_titles.txt", "movie_titles.csv")
_FIELDS = (
    Field("user", Kind.ID, "a whole number", low=0),
    Field("rating", Kind.DECIMAL, "an integer from 1 to 5", low=1.0, high=5.0, step=1.0),
    Field("date", Kind.ISO, "a date such as 2005-09-06"),
)


def load_netflix(
    path: str | os.PathLike[str],
    *,
    item_ids: str | Column | None = None,
    unlisted: str = "error",
) -> Interactions:
    """Load the Netflix Prize data, which are 100 million ratings, in one of the published formats.

    The formats are the folder ``training_set`` with one file per movie (``mv_0000001.txt``), its archive
    ``training_set.tar``, and Kaggle's ``combined_data_1.txt`` to ``combined_data_4.txt``.  Each format needs
    ``movie_titles.txt`` or ``movie_titles.csv``.  The ratings of the competition's test set (``qualifying.txt``) have
    no values and are not read.

    Parameters
    ----------
    path : str or path-like
        Path of the folder with these files, or of Kaggle's downloaded zip.  A path of ``training_set`` or
        ``training_set.tar`` refers to the parent folder.  If the folder and the tar both exist, the folder is read.
    item_ids : "published", array_like or None
        Catalogue of movies.  "published" lists all movies of ``movie_titles`` in its order, and is public.  An
        array_like lists ids of these movies.  None lists the movies with a rating.
    unlisted : {"error", "drop"}
        Treatment of a rating of a movie that is not in the catalogue.

    Returns
    -------
    Interactions
        Ratings from 1 to 5 as float32 values, with dates as seconds since 1970 (midnight, UTC) and the publisher's
        integer ids.  Item features are ``title`` and the ``year`` of release, an integer that is 0 if unknown.

    Raises
    ------
    FileNotFoundError
        A missing path, or a missing file of the data set.
    ValueError
        An unknown format, a damaged archive, a malformed file, or a movie with a title but without ratings.  Every
        published movie has ratings, so in the last case a file is missing.  The message names the file, the line and
        the reason.

    Notes
    -----
    The maximum memory is about three times the memory of the result, which takes 16 bytes per rating.

    References
    ----------
    .. [1] J. Bennett and S. Lanning, "The Netflix Prize", KDD Cup and Workshop, 2007.

    Examples
    --------
    >>> from fastfedrec.datasets import load_netflix
    >>> data = load_netflix("netflix-prize-data.zip")  # doctest: +SKIP
    >>> data  # doctest: +SKIP
    <Interactions: 480,189 users x 17,770 items, 100,480,507 interactions with values>
    """
    files = _open(check_path("path", path))
    ratings = _find_ratings(files)
    if not ratings:
        raise ValueError(
            f"path {str(files.path)!r} must hold training_set with mv_0000001.txt and so on, training_set.tar, or "
            f"{_KAGGLE[0]} to {_KAGGLE[-1]}, got none of them; check the path"
        )
    titles = _find_titles(files, ratings[0])
    reader = ColumnReader(_FIELDS, ",", headings=True)
    # All files go through one reader, so that their columns grow in one array.
    for member in ratings:
        _read(files, member, reader)
    users, stars, seconds, movies = reader.columns()
    published = _read_titles(files, titles, movies)
    if isinstance(item_ids, str):
        check_choice("item_ids", item_ids, ("published",))
        item_ids = np.array(list(published), dtype=np.int64)
    try:
        data = to_interactions(users, movies, stars, seconds, duplicates="error", item_ids=item_ids, unlisted=unlisted)
    except ValueError:
        if duplicate_rows := find_duplicate(users, movies):
            row = duplicate_rows[1]
            reason = f"user {users[row]} rates movie {movies[row]} a second time; remove one"
            raise ValueError(f"{reader.file_of(row)}: {reason}") from None
        raise
    for movie in data.item_ids.tolist():
        if movie not in published:
            raise ValueError(
                f"item_ids must list published movies, got {movie!r}, which has no row in {files.name(titles)}; remove "
                "it"
            )
    movie_rows = [published[movie] for movie in data.item_ids.tolist()]
    columns = {
        "title": np.array([title for _, title in movie_rows], dtype=np.str_),
        "year": np.array([year for year, _ in movie_rows], dtype=np.int64),
    }
    return data.with_features(item_features=columns)


def holds_netflix(path: Path) -> bool:
    """Return whether a path has the files of one of the published formats, by their names.

    Parameters
    ----------
    path : Path
        Path of a folder or an archive.

    Returns
    -------
    bool
        True if the files exist, False if they are missing or cannot be read.
    """
    try:
        return bool(_find_ratings(_open(path)))
    except (ValueError, FileNotFoundError):
        return False


def _open(path: Path) -> Files:
    # `movie_titles.txt` is next to the training set, so its parent folder is opened.
    is_training_set = path.name in ("training_set", "training_set.tar") and path.exists()
    return Files(path.absolute().parent if is_training_set else path, "Netflix zip")


def _find_ratings(files: Files) -> list[PurePosixPath]:
    """Return the files of ratings of one format in order; Kaggle's format always has four files."""
    movies = sorted(m for m in files.members if re.fullmatch(r"mv_[0-9]{7}\.txt", m.name))
    if movies:
        return movies
    tars = [m for m in files.members if m.name == "training_set.tar"]
    if tars:
        return tars[:1]
    parts = sorted(m for m in files.members if m.name in _KAGGLE)
    return [parts[0].parent / name for name in _KAGGLE] if parts else []


def _find_titles(files: Files, ratings: PurePosixPath) -> PurePosixPath:
    for folder in (ratings.parent, ratings.parent.parent):
        for name in _TITLES:
            if folder / name in files.members:
                return folder / name
    raise FileNotFoundError(
        f"{files.name(ratings.parent / _TITLES[0])} is missing (or {_TITLES[1]}, or in the folder above); unpack or "
        "download the data again"
    )


def _read(files: Files, member: PurePosixPath, reader: ColumnReader) -> None:
    with files.open(member) as stream:
        if member.suffix != ".tar":
            reader.read(stream, files.name(member))
            return
        n_movies = 0
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for info in archive:
                if info.isfile() and info.name.endswith(".txt"):
                    reader.read(archive.extractfile(info), f"{files.name(member)}: {info.name}")  # type: ignore[arg-type]
                    n_movies += 1
        if not n_movies:
            raise ValueError(f"{files.name(member)} must hold mv_0000001.txt and so on, got none; download it again")


def _read_titles(files: Files, member: PurePosixPath, movies: np.ndarray) -> dict[int, tuple[int, str]]:
    """Return year and title by movie in the order of the file; raise unless they match the movies with ratings."""
    name = files.name(member)
    rows: dict[int, tuple[int, str]] = {}
    for number, line in enumerate(files.read_text(member, "latin-1").split("\n")[:-1], start=1):
        match = re.fullmatch(r"([0-9]{1,18}),([0-9]{4}|NULL),(.+)", line)
        if match is None:
            refuse(name, number, f"expected movie, year (or NULL) and title separated by ',', got {line[:80]!r}")
        movie, year, title = match.groups()
        if int(movie) in rows:
            refuse(name, number, f"movie {movie} has a second row; remove one")
        rows[int(movie)] = (0 if year == "NULL" else int(year), title)
    rated = set(np.unique(movies).tolist())
    for movie in sorted(rated ^ rows.keys()):  # this is the only sign of a truncated tar
        if movie in rated:
            raise ValueError(f"{name} has no row for movie {movie}, which has ratings; download the data again")
        raise ValueError(f"{name}: movie {movie} has no ratings; a file is missing or cut short, download it again")
    return rows
