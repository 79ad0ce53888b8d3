"""The smallest numbers of fake messages in rounds of counts that cost at most an epsilon."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from fastfedrec.accounting import PLDAccountant, ShuffledCounts, gaussian_mu
from fastfedrec.accounting.events import Event

__all__ = ["epsilon_of", "fakes_per_cell", "messages_in"]

_MAX_MEAN = 2.0**16  # largest mean number of fake messages about a cell that the accountant uses
_ROUNDING = 1 + 2.0**-30  # raises a mean by more than the rounding errors of rates
_STEPS = 12  # largest number of steps of the calibration


def _round_up(mean: float) -> float:
    """Return a number with at most 12 bits, so that the last bits of math functions of a machine do not matter."""
    fraction, exponent = math.frexp(mean)
    return math.ldexp(math.ceil(fraction * 2**12), exponent - 12)


@lru_cache(maxsize=64)
def epsilon_of(events: Sequence[Event], delta: float) -> float:
    """Return the cost of a run, which takes longer to compute than a small fit."""
    account = PLDAccountant()
    for event in events:
        account.compose(event)
    return account.get_epsilon(delta)


def messages_in(
    shares: Sequence[float], n_messages: Sequence[int], epsilon: float, delta: float, most_fakes: float = math.inf
) -> tuple[int, ...]:
    """Return the bounds of a user's numbers of messages in rounds with these shares of the squared budget.

    Parameters
    ----------
    shares : sequence of float
        Share of each round.
    n_messages : sequence of int
        Sum of squares of a user's numbers of messages that each round should have, at most.
    epsilon, delta : float
        Budget of all rounds.
    most_fakes : float
        Largest mean number of fake messages about a cell.

    Returns
    -------
    tuple of int
        `n_messages`, or less in rounds with a small share, which would need too many fakes.
    """
    square = gaussian_mu(epsilon, delta) ** 2
    limits = (max(1, int(min(_MAX_MEAN / 4, most_fakes / 2) * share * square)) for share in shares)
    return tuple(map(min, n_messages, limits))


@lru_cache(maxsize=64)
def fakes_per_cell(
    numbers: Sequence[int],
    shares: Sequence[float],
    epsilon: float,
    delta: float,
    neighboring: Literal["zero_out", "replace"] = "zero_out",
) -> tuple[float, ...]:
    """Return the smallest mean numbers of fake messages about a cell at which rounds cost at most an epsilon.

    Parameters
    ----------
    numbers : tuple of int
        Sum of squares of a user's numbers of messages in each round, at most.
    shares : tuple of float
        Share of each round in the squared budget.
    epsilon, delta : float
        Budget of all rounds.
    neighboring : {"zero_out", "replace"}
        Whether a user's data are compared with none, or with any others.

    Returns
    -------
    tuple of float
        Mean number of all honest users' fake messages about a cell in each round, within some percent of the smallest.

    Raises
    ------
    ValueError
        No number of fakes that the accountant counts is enough.
    """
    parts = [number / share for number, share in zip(numbers, shares, strict=True)]

    def means(scale: float) -> tuple[float, ...]:
        return tuple(_round_up(scale * part) for part in parts)

    def cost(scale: float) -> float:
        events = tuple(
            ShuffledCounts("counts", mean / _ROUNDING, number, 1, neighboring=neighboring)
            for number, mean in zip(numbers, means(scale), strict=True)
        )
        return epsilon_of(events, delta * (1 - 2.0**-12))  # the rest is for the rounding of Poisson numbers

    largest = _MAX_MEAN / max(parts)
    # A replaced user changes twice as many counts.
    scale = (2 if neighboring == "replace" else 1) * gaussian_mu(epsilon, delta) ** -2
    low, high = 0.0, math.inf
    # Noise of variance `scale` costs about scale^-1/2, and more if there are few fakes.
    power, before = 0.5, (0.0, math.inf)
    for _ in range(_STEPS):
        scale = min(_round_up(scale), largest)
        found = cost(scale)
        if before[0] != scale and 0 < found < math.inf and before[1] < math.inf:
            power = min(max(math.log(found / before[1]) / math.log(before[0] / scale), 0.25), 8.0)
        before = scale, found
        if found <= epsilon:
            high = scale
            if found > 0.992 * epsilon:
                break
        elif scale == largest:
            raise ValueError(
                f"epsilon must be larger, got {epsilon}: it needs more than {_MAX_MEAN:,.0f} fake messages about each "
                "pair; raise epsilon, or lower n_messages"
            )
        else:
            low = scale
        if high <= 1.01 * low:
            break
        ratio = (found / (0.996 * epsilon)) ** (1 / power) if math.isfinite(found) else 2.0
        scale *= min(max(ratio, 0.5), 2.0)
        if not low < scale < high:
            scale = math.sqrt(low * high) if 0 < low < high < math.inf else 2 * low
    if math.isinf(high):
        raise ValueError(f"epsilon must be larger, got {epsilon} at delta {delta}; raise epsilon or delta")
    return means(high)
