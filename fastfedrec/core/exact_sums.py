"""Exact sums of integers: public bounds decide, before any data are read, that none of them rounds or overflows."""

__all__ = ["DOUBLE_LIMIT", "INT64_LIMIT", "check_summands", "max_summands"]

#: Whole numbers below it, and sums of them that stay below it, are exact in double.
DOUBLE_LIMIT = 2**53
#: Whole numbers below it fit into int64.
INT64_LIMIT = 2**63


def max_summands(bound: int, limit: int, noise: int = 0) -> int:
    """Compute how many summands keep a sum below a limit.

    Parameters
    ----------
    bound : int
        Largest absolute value of one summand, above 0.
    limit : int
        `DOUBLE_LIMIT` or `INT64_LIMIT`.
    noise : int
        Largest absolute value of noise that is added to the sum in the same type.

    Returns
    -------
    int
        The largest n with n * bound + noise < limit; at least 0.

    Examples
    --------
    >>> from fastfedrec.core.exact_sums import DOUBLE_LIMIT, max_summands
    >>> max_summands(2**40, DOUBLE_LIMIT)
    8191
    """
    return max(limit - 1 - noise, 0) // bound


def check_summands(name: str, value: object, n: int, most: int, remedy: str) -> None:
    """Refuse a sum that is not proved exact by public bounds.

    Parameters
    ----------
    name : str
        The argument that decides the bound, for the message.
    value : object
        Its value, as the caller passed it.
    n : int
        Public number of summands, such as users or clients of a cohort.
    most : int
        As from `max_summands`.
    remedy : str
        The change that makes the sum exact.

    Raises
    ------
    ValueError
        More than `most` summands.  Neither number depends on data, so the error reveals nothing.

    Examples
    --------
    >>> from fastfedrec.core.exact_sums import DOUBLE_LIMIT, check_summands, max_summands
    >>> check_summands("value_range", (0, 10), 1000, max_summands(10, DOUBLE_LIMIT), "use a coarser unit")
    """
    if n > most:
        raise ValueError(f"{name} must keep sums exact, which holds for at most {most} summands, got {value} with {n}; "
                         f"{remedy}")  # fmt: skip
