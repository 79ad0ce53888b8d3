"""A reader that waits for something that never happens, without use of the processor."""

import time

from fuzz.target import Target


def read(content, _folder):
    """Wait for an hour."""
    if content[:1] == b"w":
        time.sleep(3600)


TARGET = Target(read=read, errors=(), seeds=lambda: [b"17"], seconds=1)
