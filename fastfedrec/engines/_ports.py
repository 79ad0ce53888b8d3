"""Errors of ports that a process listens on."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named_address(name: str, host: str, port: int) -> Iterator[None]:
    """Add the argument, the address and a remedy to the error of a port that cannot be opened."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{name} must be free on this machine, got {host}:{port} ({error.strerror or error}); stop the process "
            "that uses it, or pass another port"
        ) from error
