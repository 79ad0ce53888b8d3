"""Twin of the reader of item lists by user: one line at a time."""


def read_pairs(text, separator=None):
    """Return users in the order of the lines, and all pairs, as text."""
    rows = [line.split(separator) for line in text.splitlines() if line.strip()]
    return [row[0] for row in rows], [(row[0], item) for row in rows for item in row[1:] if item]
