"""A limit on the computation of a ledger's figures, for ledgers from untrusted sources."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["WorkError", "count_work", "limit_work"]

# Number of table entries that the figures of a document may need for each event; 10^7 take about a second.  The usual
# events of rounds with sampling or a shuffler need up to 7 * 10^6.  A document may need that of two more events.
_MAX_WORK_PER_EVENT, _MORE_EVENTS = 2**23, 2
# Number of entries that are left, in a list of one number; None without a limit.
_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)


class WorkError(ValueError):
    """Error for figures that need more computation than the limit."""


@contextmanager
def limit_work(n_events: int) -> Iterator[None]:
    """Raise a `WorkError` in the block before the figures of some events need far more entries than usual events do."""
    token = _left.set([_MAX_WORK_PER_EVENT * (n_events + _MORE_EVENTS)])
    try:
        yield
    finally:
        _left.reset(token)


def count_work(n_entries: float) -> None:
    """Count the entries of a table that is about to be computed."""
    if (left := _left.get()) is not None:
        left[0] -= int(min(n_entries, 2.0**60))
        if left[0] < 0:
            raise WorkError(
                "ledger.events have figures that take too long to check, because they need larger tables than this "
                "number of usual events; pass check_costs=False to read them without this check"
            )
