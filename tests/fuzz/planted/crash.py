"""A reader that raises an undocumented error for one prefix of 4 bytes, which only guidance by branches finds."""

from fuzz.target import Target


def read(content, _folder):
    """Compare byte by byte, as a parser of magic numbers."""
    if content[:1] != b"\x93":
        raise ValueError("byte 0")
    if content[1:2] != b"N":
        raise ValueError("byte 1")
    if content[2:3] != b"U":
        raise ValueError("byte 2")
    if content[3:4] != b"\xff":
        raise ValueError("byte 3")
    raise IndexError("planted")


TARGET = Target(read=read, errors=(ValueError,), seeds=lambda: [b"x"])
