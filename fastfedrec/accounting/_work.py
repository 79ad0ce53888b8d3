"""A limit on the computation of figures, for ledgers from untrusted sources."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["WorkError", "count_work", "limit_work"]

# Points that are left, in a list of one entry; None without a limit.
_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)


class WorkError(RuntimeError):
    """Error for figures that need more computation than the limit."""


@contextmanager
def limit_work(n_points: int) -> Iterator[None]:
    """Raise a `WorkError` in the block before its figures need tables with more than `n_points` entries in total."""
    token = _left.set([n_points])
    try:
        yield
    finally:
        _left.reset(token)


def count_work(n_points: float) -> None:
    """Count the entries of a table that is about to be computed."""
    if (left := _left.get()) is not None:
        left[0] -= int(min(n_points, 2.0**60))
        if left[0] < 0:
            raise WorkError("they need larger tables than a document with this number of events may")
