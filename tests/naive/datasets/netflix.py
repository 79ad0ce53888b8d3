"""Twin of the Netflix reader: one line at a time."""

from datetime import UTC, datetime


def read_ratings(text):
    """Return {(user, movie): (rating, seconds)} of well-formed lines "movie:" and "user,rating,date"."""
    ratings = {}
    for line in text.split():
        if line.endswith(":"):
            movie = int(line[:-1])
        else:
            user, rating, date = line.split(",")
            moment = datetime.fromisoformat(date).replace(tzinfo=UTC)
            ratings[int(user), movie] = (float(rating), int(moment.timestamp()))
    return ratings


def read_titles(text):
    """Return {movie: (title, year)}, with 0 for an unknown year."""
    rows = {}
    for line in text.splitlines():
        movie, year, title = line.split(",", 2)
        rows[int(movie)] = (title, 0 if year == "NULL" else int(year))
    return rows
