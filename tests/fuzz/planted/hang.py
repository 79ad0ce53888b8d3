"""A reader that does not end for one first byte."""

from fuzz.target import Target


def read(content, _folder):
    """Wait forever."""
    while content[:1] == b"h":
        pass


TARGET = Target(read=read, errors=(), seeds=lambda: [b"17"], seconds=1)
