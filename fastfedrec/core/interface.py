"""Remedies in the words of the interface in use: Python, or the shell."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["choose_words", "in_shell"]

_IS_SHELL: ContextVar[bool] = ContextVar("is_shell", default=False)


@contextmanager
def in_shell() -> Iterator[None]:
    """Mark the code of the block as called by the command line."""
    token = _IS_SHELL.set(True)
    try:
        yield
    finally:
        _IS_SHELL.reset(token)


def choose_words(python: str, shell: str) -> str:
    """Return the text for the interface in use: `shell` inside `in_shell`, else `python`."""
    return shell if _IS_SHELL.get() else python
