"""Messages that hide among the messages of a crowd of users: its size, and its honest users."""

import math

from fastfedrec.accounting.events._event import Event


class CrowdEvent(Event):
    """Base class of events in which each of `n_users` requested users sends messages."""

    n_users: int

    @property
    def _n_honest(self) -> int:
        """Number of users who may be honest."""
        return self.n_users

    def _in_crowd(self, n_users: int, n_honest: int) -> "CrowdEvent":
        """Return the same messages in another crowd."""
        raise NotImplementedError

    def _without_crowd(self) -> Event:
        return self._in_crowd(1, 1)


def count_honest(n_users: int, honest_fraction: float) -> int:
    """Return the number of honest users, rounded down."""
    # Beyond 2^53 users the product may round up, so the number of users bounds it.
    return min(n_users, int(honest_fraction * n_users))


def share_of_honest(n_honest: int, n_users: int) -> float:
    """Return the share of honest users, which `count_honest` restates as this number."""
    share = n_honest / n_users
    # A quotient that was rounded down would lose one honest user.
    return share if count_honest(n_users, share) >= n_honest else math.nextafter(share, 1.0)
