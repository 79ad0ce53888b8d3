"""What an entity of private prototypes spends on what: noise scales from public numbers, and the events of a round."""

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from fastfedrec.accounting import ZCDP, ZCDPAccountant
from fastfedrec.accounting.events import Event
from fastfedrec.systems.private_prototypes.private_kmeans import clustering_events
from fastfedrec.systems.private_prototypes.prototypes import MAX_STEPS, Recovery

__all__ = ["GRID_DEPTH", "MAX_PROTOTYPES", "N_SWAPS", "Budget", "choose_n_prototypes", "plan", "steps_per_unit"]

SHARES = {"grid": Fraction(1, 10), "swaps": Fraction(3, 10), "support": Fraction(1, 5)}  # the rest is for values
N_SWAPS = 20
GRID_DEPTH = 4
MIN_SIGNAL = 14.0  # measured: docs/explanation/systems/private_prototypes/private-prototypes.md
MAX_PROTOTYPES = 300
_TABLE_SHARE = 1e-6  # of delta, for what the noise tables are off the ideal
_MAX_TABLE_STDDEV = 30_000
_STEPS = 8  # of the integer grid, at least, in the largest value
_MIN_REACH = _STEPS / MAX_STEPS  # largest value for which the grid is coarse enough


def steps_per_unit(reach: float) -> int:
    """Of the integer grid in one unit: values are at least eighths of the largest, and counts whole."""
    if reach < _MIN_REACH:
        raise ValueError(
            f"`value_range` must let a value add at least {_MIN_REACH:g} to a sum, got {reach:g}; express values in a "
            "smaller unit. A value adds up to the upper end, or half the length of the range with prototypes='masked'"
        )
    return 2 ** max(0, math.ceil(math.log2(_STEPS / reach)))


@dataclass(frozen=True)
class Budget:
    """How one entity's epsilon is spent.

    Parameters
    ----------
    recovery : Recovery
        Of noisy sums, after a choice of items.
    swap_epsilon : float or None
        Of each of the `N_SWAPS` + 1 draws of the private k-means.
    level_epsilon : float or None
        Of each level of the grid of candidates.
    events : tuple of events
        All that happens to a user, in order.
    """

    recovery: Recovery
    swap_epsilon: float | None
    level_epsilon: float | None
    events: tuple[Event, ...]


@functools.lru_cache(maxsize=64)
def plan(
    epsilon: float,
    delta: float | None,
    sums: Recovery,
    n_items: int,
    n_prototypes: int,
    max_rows: int,
    clusters: bool,
    grid: bool,
) -> Budget:
    """Divide a user's budget by fixed shares; everything follows from public numbers.

    `sums` is what would be sent without noise.  Under zCDP all is divided by rho.  A user with several rows costs
    `max_rows` times the epsilon of a row, or its square times the rho (group privacy).
    """
    chosen = sums.support_size
    shares = {"grid": SHARES["grid"] * grid, "swaps": SHARES["swaps"] * clusters}
    shares["support"] = SHARES["support"] * (chosen is not None)
    counts = {"grid": GRID_DEPTH, "swaps": N_SWAPS + 1, "support": chosen or 1}
    pure = delta is None
    total = Fraction(epsilon) if pure else Fraction(_rho(epsilon, float(delta or 0) * (1 - _TABLE_SHARE)))
    of_row = total / (max_rows if pure else max_rows**2)
    spent = Fraction(0)
    each: dict[str, float | None] = dict.fromkeys(counts)
    for part, share in shares.items():
        if not share:
            continue
        # Downward, so that all parts together are at most the whole.  A draw of range epsilon costs epsilon^2 / 8
        # (Cesar and Rogers 2021), a test with Laplace noise epsilon^2 / 2.
        one = float(share * of_row / counts[part]) * (1 - 2.0**-50)
        factor = 2 if part == "grid" else 8
        each[part] = one = one if pure else math.sqrt(factor * one)
        spent += counts[part] * (Fraction(one) if pure else Fraction(one) ** 2 / factor)
    left = float(of_row - spent) * (1 - 2.0**-50)
    support_epsilon = None if each["support"] is None else each["support"] * (chosen or 0)
    noisy = replace(
        sums, epsilon=left if pure else None, rho=None if pure else left, support_epsilon=support_epsilon
    )  # fmt: skip
    if not pure and noisy.stddev * noisy.steps_per_unit <= _MAX_TABLE_STDDEV:
        table = replace(noisy, sampler="table")
        n_draws = table.n_draws(n_prototypes, n_items) * max_rows
        if table.noise is not None and table.noise.delta(epsilon, n_draws) <= float(delta or 0) * _TABLE_SHARE:
            noisy = table
    accounting = "pure" if pure else "zcdp"
    events = noisy.events(n_prototypes, n_items, accounting=accounting, n_rows=max_rows).events
    if each["swaps"] is not None:
        clustering = clustering_events(
            swap_epsilon=each["swaps"], n_swaps=N_SWAPS, grid_epsilon=each["grid"], depth=GRID_DEPTH,
            accounting=accounting, n_rows=max_rows,
        )  # fmt: skip
        events = clustering.events + events
    return Budget(noisy, each["swaps"], each["grid"], events)


@functools.lru_cache(maxsize=64)
def _rho(epsilon: float, delta: float) -> float:
    """The largest rho, to 2^-50 of it, that is (epsilon, delta)-differentially private by the package's accountant."""

    def costs(rho: float) -> float:
        return ZCDPAccountant().compose(ZCDP("", rho, neighboring="add_remove", sampling="none")).get_epsilon(delta)

    low, high = 0.0, epsilon  # rho-zCDP costs more than rho
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if costs(middle) <= epsilon else (low, middle)
    return low


def choose_n_prototypes(size: int | None, n_items: int, max_entries: int, stddev: float) -> int:
    """How many prototypes the noise leaves room for, from public numbers alone.

    The entries that an entity of `size` users may contribute are `size` `max_entries`.  Spread evenly over items, they
    are as many as `MIN_SIGNAL` standard deviations of the noise for each prototype and item.
    """
    if size is None:
        return 1
    entries = size * min(max_entries, n_items)
    return max(1, min(MAX_PROTOTYPES, int(entries / (n_items * MIN_SIGNAL * stddev))))
