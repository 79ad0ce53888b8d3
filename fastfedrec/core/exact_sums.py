"""Exact sums of integers: bounds on public numbers show in advance that no sum rounds or overflows."""

__all__ = ["DOUBLE_LIMIT", "INT64_LIMIT", "check_summands", "max_summands"]

#: Integers below it, and sums of them that stay below it, are exact in double.
DOUBLE_LIMIT = 2**53
#: Integers below it fit into int64.
INT64_LIMIT = 2**63


def max_summands(bound: int, limit: int, noise: int = 0) -> int:
    """Return the largest n with n * bound + noise < limit, at least 0, for summands of absolute value up to `bound`."""
    # `noise` is the largest absolute value of noise that is added to the sum in the same type.
    return max(limit - 1 - noise, 0) // bound


def check_summands(name: str, value: object, n: int, max_n: int, remedy: str) -> None:
    """Raise a ValueError that names an argument and a remedy if `n` summands exceed `max_n`, as from `max_summands`."""
    # Both numbers are public, so the error reveals no data.
    if n > max_n:
        raise ValueError(
            f"{name} must keep sums exact, which holds for at most {max_n} summands, got {value} with {n}; {remedy}"
        )
