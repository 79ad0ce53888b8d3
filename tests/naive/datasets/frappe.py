"""Twin of the Frappe reader: one line at a time."""

from collections import Counter


def read_log(text):
    """Return (list of entries as dicts of strings, uses of each pair) of a well-formed file."""
    header, *lines = text.splitlines()
    entries = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    return entries, Counter((int(entry["user"]), int(entry["item"])) for entry in entries)
