"""The budget of an entity of private prototypes: noise scales from public numbers, and the events of a round."""

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from fastfedrec.accounting import ZCDP, ZCDPAccountant
from fastfedrec.accounting.events import Event
from fastfedrec.systems.private_prototypes.private_kmeans import clustering_events
from fastfedrec.systems.private_prototypes.prototypes import MAX_STEPS, Recovery

__all__ = ["GRID_DEPTH", "MAX_PROTOTYPES", "N_SWAPS", "Budget", "choose_n_prototypes", "plan", "steps_per_unit"]

# Shares of a user's budget; the noise on values gets the remainder.
SHARES = {"grid": Fraction(1, 10), "swaps": Fraction(3, 10), "support": Fraction(1, 5)}
N_SWAPS = 20  # steps of the private k-means
GRID_DEPTH = 4  # levels of the grid of candidates
# Standard deviations of noise per prototype and item for each prototype to be useful; measured, see
# docs/explanation/systems/private_prototypes/private-prototypes.md.
MIN_SIGNAL = 14.0
MAX_PROTOTYPES = 300
_TABLE_SHARE = 1e-6  # share of delta for the distance of noise tables from ideal noise
_MAX_TABLE_STDDEV = 30_000  # in steps: larger noise is drawn without a table
_STEPS = 8  # smallest number of grid steps of the largest value
_MIN_SUMMAND = _STEPS / MAX_STEPS  # smallest largest value for which the grid is coarse enough


def steps_per_unit(max_summand: float) -> int:
    """Return the steps of the grid per unit, so that the largest value has at least 8 steps and counts are whole."""
    if max_summand < _MIN_SUMMAND:
        raise ValueError(
            f"`value_range` must let a value add at least {_MIN_SUMMAND:g} to a sum, got "
            f"{max_summand:g}; express values in a smaller unit. A value adds up to the upper end, or half the length "
            "of the range with prototypes='masked'"
        )
    return 2 ** max(0, math.ceil(math.log2(_STEPS / max_summand)))


@dataclass(frozen=True)
class Budget:
    """The division of one entity's epsilon.

    `recovery` is for the noisy sums, after a choice of items.  `swap_epsilon` is for each of the `N_SWAPS` + 1 draws of
    the private k-means, `level_epsilon` for each level of the grid of candidates, and `events` has all costs.
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
    """Divide a user's budget by fixed shares that depend on public numbers only; `sums` has the message without noise.

    Under zCDP the shares are of rho.  A user with several rows costs `max_rows` times the epsilon of a row, or its
    square times the rho (group privacy).
    """
    support_size = sums.support_size
    shares = {"grid": SHARES["grid"] * grid, "swaps": SHARES["swaps"] * clusters}
    shares["support"] = SHARES["support"] * (support_size is not None)
    counts = {"grid": GRID_DEPTH, "swaps": N_SWAPS + 1, "support": support_size or 1}
    pure = delta is None
    # The budget is in epsilon, or in the largest rho that the accountant allows.
    total = Fraction(epsilon) if pure else Fraction(_rho(epsilon, float(delta or 0) * (1 - _TABLE_SHARE)))
    # Group privacy over the rows of a user.
    of_row = total / (max_rows if pure else max_rows**2)
    spent = Fraction(0)
    part_costs: dict[str, float | None] = dict.fromkeys(counts)
    for part, share in shares.items():
        if not share:
            continue
        # Rounded down, so that all parts add up to at most the whole.  A draw of bounded range epsilon has the rho
        # epsilon^2 / 8 (Cesar and Rogers 2021), and a test with Laplace noise epsilon^2 / 2.
        draw_cost = float(share * of_row / counts[part]) * (1 - 2.0**-50)
        factor = 2 if part == "grid" else 8
        part_costs[part] = draw_cost = draw_cost if pure else math.sqrt(factor * draw_cost)
        spent += counts[part] * (Fraction(draw_cost) if pure else Fraction(draw_cost) ** 2 / factor)
    # Exact rationals make sure that the parts never exceed the whole.
    remaining = float(of_row - spent) * (1 - 2.0**-50)
    support_epsilon = None if part_costs["support"] is None else part_costs["support"] * (support_size or 0)
    noisy = replace(
        sums, epsilon=remaining if pure else None, rho=None if pure else remaining, support_epsilon=support_epsilon
    )  # fmt: skip
    if not pure and noisy.stddev * noisy.steps_per_unit <= _MAX_TABLE_STDDEV:
        table = replace(noisy, sampler="table")
        # Tables are much faster, if their distance from ideal noise costs a negligible share of delta.
        n_draws = table.n_draws(n_prototypes, n_items) * max_rows
        if table.noise is not None and table.noise.delta(epsilon, n_draws) <= float(delta or 0) * _TABLE_SHARE:
            noisy = table
    accounting = "pure" if pure else "zcdp"
    events = noisy.events(n_prototypes, n_items, accounting=accounting, n_rows=max_rows).events
    if part_costs["swaps"] is not None:
        clustering = clustering_events(
            swap_epsilon=part_costs["swaps"], n_swaps=N_SWAPS, grid_epsilon=part_costs["grid"], depth=GRID_DEPTH,
            accounting=accounting, n_rows=max_rows,
        )  # fmt: skip
        events = clustering.events + events
    return Budget(noisy, part_costs["swaps"], part_costs["grid"], events)


@functools.lru_cache(maxsize=64)
def _rho(epsilon: float, delta: float) -> float:
    """Return the largest rho, to a relative 2^-50, that the package's accountant puts at (epsilon, delta)."""

    def costs(rho: float) -> float:
        return ZCDPAccountant().compose(ZCDP("", rho, neighboring="add_remove", sampling="none")).get_epsilon(delta)

    low, high = 0.0, epsilon  # epsilon of rho-zCDP exceeds rho
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if costs(middle) <= epsilon else (low, middle)
    return low


def choose_n_prototypes(size: int | None, n_items: int, max_entries: int, stddev: float) -> int:
    """Return the number of prototypes for which the counts exceed the noise, by public numbers only.

    An entity of `size` users contributes at most `size` * `max_entries` entries.  Spread evenly over items, each
    prototype and item must have `MIN_SIGNAL` standard deviations of the noise.
    """
    if size is None:
        return 1
    entries = size * min(max_entries, n_items)
    return max(1, min(MAX_PROTOTYPES, int(entries / (n_items * MIN_SIGNAL * stddev))))
