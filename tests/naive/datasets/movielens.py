"""Twin of the MovieLens reader's ratings: one line at a time."""


def read_ratings(text, separator, has_header=False):
    """Return {(user, item): (rating, timestamp)}, given well-formed lines."""
    ratings = {}
    for line in text.splitlines()[has_header:]:
        user, item, rating, timestamp = line.split(separator)
        ratings[int(user), int(item)] = (float(rating), int(timestamp))
    return ratings
