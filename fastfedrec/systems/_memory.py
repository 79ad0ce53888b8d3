"""The memory of a fit by the arrays that its class declares, and the refusal of a fit that exceeds the machine."""

from typing import Any, Literal, overload

from fastfedrec.core.check import check_flag, check_integer
from fastfedrec.core.memory import Array, Arrays, Sizes, check_memory, total_bytes
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers


@overload
def memory_needed(
    self: Any, n_users: int, n_items: int, n_interactions: int, *, n_threads: int = 1, details: Literal[False] = False
) -> int: ...


@overload
def memory_needed(
    self: Any, n_users: int, n_items: int, n_interactions: int, *, n_threads: int = 1, details: Literal[True]
) -> dict[str, Array]: ...


def memory_needed(
    self: Any, n_users: int, n_items: int, n_interactions: int, *, n_threads: int = 1, details: bool = False
) -> int | dict[str, Array]:
    """Compute the memory that `fit` needs beside its data, from sizes alone.

    Parameters
    ----------
    n_users, n_items : int
        Numbers of users and items, at least 1.
    n_interactions : int
        Number of pairs of a user and an item, at least 0.
    n_threads : int
        Number of threads, 0 for all.
    details : bool
        Whether to return the arrays instead of their total.

    Returns
    -------
    int or dict of str to Array
        Bytes at the peak; or the large arrays of that moment, each with `dtype`, `shape` and `n_bytes`.

    Raises
    ------
    TypeError
        The class does not declare its memory.

    Notes
    -----
    Tests compare the figures with measured peaks of runs in one process on one thread; they differ by at most 25 %
    where arrays dominate.  `fit` refuses a run that needs more than the machine or its control group has, before any
    message or release.  A fit with a guarantee counts no interactions for this check, since their number is private.

    Examples
    --------
    >>> from fastfedrec import EASE
    >>> EASE().memory_needed(1_000_000, 20_000, 50_000_000) > 4.8e9
    True
    >>> EASE().memory_needed(1_000_000, 20_000, 50_000_000, details=True)["pairs"]
    Array(dtype='float64', shape=(20000, 20000))
    """
    sizes = Sizes(
        check_integer("n_users", n_users, low=1),
        check_integer("n_items", n_items, low=1),
        check_integer("n_interactions", n_interactions, low=0),
        resolve_n_threads(n_threads),
    )
    arrays = _arrays_at_peak(self, sizes)
    if arrays is None:
        raise TypeError(f"{type(self).__name__} does not declare its memory; define _memory(sizes) in the class")
    return dict(arrays) if check_flag("details", details) else total_bytes(arrays)


def check_fit(model: Any, data: Interactions, n_threads: int) -> None:
    """Raise a ValueError if the fit of a model needs more memory than this process may use."""
    if not data.n_items:
        return
    # Rows on nodes take no memory here.
    n_users = 0 if isinstance(data, RemoteUsers) else data.n_users
    n_interactions = 0 if model._is_private else data.n_interactions

    def needed(n_items: int) -> int:
        return total_bytes(_arrays_at_peak(model, Sizes(n_users, n_items, n_interactions, n_threads)) or {})

    check_memory(type(model).__name__, data.n_items, needed, model._needs_less)


def _arrays_at_peak(model: Any, sizes: Sizes) -> Arrays | None:
    """Return the arrays of the step of a fit that needs the most memory, or None without a declaration."""
    return max(model._memory(sizes), key=total_bytes, default=None)


def counting_memory(sizes: Sizes) -> Arrays:
    """Return the arrays in which exact users of each item are counted."""
    return {"columns": Array.of("int64", sizes.n_interactions), "counts": Array.of("int64", 2, sizes.n_items)}
