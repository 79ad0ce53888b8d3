"""A reader that never frees memory."""

from fuzz.target import Target

kept = []


def read(content, _folder):
    """Keep a mebibyte of each input."""
    kept.append(b"x" * 2**20)


TARGET = Target(read=read, errors=(), seeds=lambda: [b"17"], memory_bytes=2**26)
