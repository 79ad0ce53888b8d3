"""A reader that requests the size that its input states, and hides the failure in a documented error."""

import numpy as np

from fuzz.target import Target


def read(content, _folder):
    """Allocate as stated."""
    try:
        np.empty(int(content[:3]) * 2**30, dtype=np.uint8)
    except MemoryError as error:
        raise ValueError("too large") from error


TARGET = Target(read=read, errors=(ValueError,), seeds=lambda: [b"0"])
