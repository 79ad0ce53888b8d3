"""Twin of the Netflix reader: one line at a time."""

from datetime import UTC, datetime


def read_ratings(text):
    """{(user, movie): (rating, seconds)} of lines "movie:" and "user,rating,date", all taken to be well formed."""
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
    """{movie: (title, year)}, with 0 for a year that is not known."""
    rows = {}
    for line in text.splitlines():
        movie, year, title = line.split(",", 2)
        rows[int(movie)] = (title, 0 if year == "NULL" else int(year))
    return rows
