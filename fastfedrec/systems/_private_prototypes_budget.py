"""What an entity of private prototypes spends on what: noise scales from public numbers, and the events of a round."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from fastfedrec.accounting import ZCDP, CentralRelease, ZCDPAccountant
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialMechanism
from fastfedrec.mechanisms.integer_noise import float_upper

SHARES = {"grid": Fraction(1, 10), "swaps": Fraction(3, 10), "support": Fraction(1, 5)}  # the rest is for values
N_SWAPS = 20
GRID_DEPTH = 4
MIN_SIGNAL = 2.0
MAX_PROTOTYPES = 300
_TABLE_SHARE = 1e-6  # of delta, for what the noise tables are off the ideal
_MAX_TABLE_STDDEV = 30_000
_MOST_DRAWS = 10**9
_NO_EPSILON = 2.0**-500  # of an event that costs delta only
_STEPS = 8  # of the integer grid, at least, in the largest value


@dataclass(frozen=True)
class Range:
    """Public limits of a user's contribution.

    Parameters
    ----------
    low, high : float
        Values are clipped to them.
    masked : bool
        Whether prototypes are means over those who have a value (else missing values count as 0).
    max_entries : int
        Kept of a user.
    """

    low: float
    high: float
    masked: bool
    max_entries: int

    @property
    def center(self) -> float:
        """What sums are relative to."""
        return (self.low + self.high) / 2 if self.masked else 0.0

    @property
    def reach(self) -> float:
        """The largest distance of a value from `center`, rounding included."""
        center = Fraction(self.center)
        return float_upper(max(center - Fraction(self.low), Fraction(self.high) - center))

    @property
    def steps(self) -> int:
        """Of the integer grid in one unit: values are at least eighths of the largest, and counts whole."""
        return 2 ** max(0, math.ceil(math.log2(_STEPS / self.reach)))

    def l1(self, q: int) -> Fraction:
        """The most a user with q entries moves all counts and sums, in grid steps: (1 + h) q, or q r_max + 1."""
        h = Fraction(self.reach)
        return self.steps * ((1 + h) * q if self.masked else q * h + 1)

    def l2_squared(self, q: int) -> Fraction:
        """The same in squared Euclidean norm: (1 + h^2) q, or q r_max^2 + 1."""
        h = Fraction(self.reach)
        return self.steps**2 * ((1 + h * h) * q if self.masked else q * h * h + 1)


@dataclass(frozen=True)
class Budget:
    """How one entity's epsilon is spent.

    Parameters
    ----------
    noise : DiscreteLaplace or DiscreteGaussian
        On counts and sums, in grid steps.
    selection : ExponentialMechanism or None
        Of each prototype's support.
    swap_epsilon : float or None
        Of each of the `N_SWAPS` + 1 draws of the private k-means.
    level_epsilon : float or None
        Of each level of the grid of candidates.
    events : tuple of events
        All that happens to a user, in order.
    """

    noise: DiscreteLaplace | DiscreteGaussian
    selection: ExponentialMechanism | None
    swap_epsilon: float | None
    level_epsilon: float | None
    events: tuple[CentralRelease | ZCDP, ...]


@functools.lru_cache(maxsize=64)
def plan(
    epsilon: float,
    delta: float | None,
    limits: Range,
    n_items: int,
    n_selected: int | None,
    max_rows: int,
    clusters: bool,
    grid: bool,
) -> Budget:
    """Divide a user's budget by fixed shares; everything follows from public numbers.

    Under zCDP all is divided by rho.  A user with several rows costs `max_rows` times the epsilon of a row, or its
    square times the rho (group privacy).
    """
    shares = {"grid": SHARES["grid"] * grid, "swaps": SHARES["swaps"] * clusters}
    shares["support"] = SHARES["support"] * (n_selected is not None)
    counts = {"grid": GRID_DEPTH, "swaps": N_SWAPS + 1, "support": n_selected or 1}
    names = {
        "grid": "tests of grid cells",
        "swaps": "draws of a private k-means",
        "support": "support of prototypes",
    }
    pure = delta is None
    total = Fraction(epsilon) if pure else Fraction(_rho(epsilon, float(delta or 0) * (1 - _TABLE_SHARE)))
    of_row = total / (max_rows if pure else max_rows**2)
    spent, events = Fraction(0), []
    each: dict[str, float | None] = dict.fromkeys(names)
    for part, name in names.items():
        if not shares[part]:
            continue
        # Downward, so that all parts together are at most the whole.  A draw of range epsilon costs epsilon^2 / 8
        # (Cesar and Rogers 2021), a test with Laplace noise epsilon^2 / 2.
        one = float(shares[part] * of_row / counts[part]) * (1 - 2.0**-50)
        factor = 2 if part == "grid" else 8
        each[part] = one if pure else math.sqrt(factor * one)
        cost = Fraction(one) if pure else Fraction(math.sqrt(factor * one)) ** 2 / factor
        spent += counts[part] * cost
        events.append(_event(name, cost * (max_rows if pure else max_rows**2), pure, counts[part]))
    # Only the chosen entries of a user count.
    q = min(limits.max_entries, n_items, n_selected or n_items)
    left = of_row - spent
    noise: DiscreteLaplace | DiscreteGaussian
    if pure:
        noise = DiscreteLaplace(limits.l1(q) / left)
        events.append(_event("discrete Laplace on prototypes", left * max_rows, True, 1))
    else:
        stddev = math.sqrt(limits.l2_squared(q) / (2 * left)) * (1 + 2.0**-50)
        noise = DiscreteGaussian(stddev, sampler="table" if stddev <= _MAX_TABLE_STDDEV else "exact")
        # Beyond, e^epsilon leaves the floats; no table is good enough there anyway.
        off = noise.delta(8 * epsilon, _MOST_DRAWS * max_rows) if 8 * epsilon < 300 else 1.0
        if off > float(delta or 0) * _TABLE_SHARE:
            noise, off = DiscreteGaussian(stddev), 0.0
        cost = limits.l2_squared(q) / (2 * noise.stddev**2)
        events.append(_event("discrete Gaussian on prototypes", cost * max_rows**2, False, 1))
        if off:
            events.append(CentralRelease("noise tables off the ideal", _NO_EPSILON, delta=off, trust="entity"))
    selection = None
    if n_selected is not None and each["support"] is not None:
        whole = each["support"] * n_selected
        # Scores are counts of users, or sums in grid steps: one user moves them all in one direction.
        step = Fraction(1) if limits.masked else Fraction(limits.reach) * limits.steps
        selection = ExponentialMechanism(whole, sensitivity=step, n_selected=n_selected, monotone=True)
    return Budget(noise, selection, each["swaps"], each["grid"], tuple(events))


def _event(name: str, cost: Fraction, pure: bool, count: int) -> CentralRelease | ZCDP:
    if pure:
        return CentralRelease(name, float_upper(cost), count=count, trust="entity")
    return ZCDP(name, float_upper(cost), neighboring="add_remove", sampling="none", count=count, trust="entity")


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


def noise_stddev(budget: Budget, limits: Range) -> float:
    """Standard deviation of the noise on one count, in users."""
    return math.sqrt(budget.noise.variance) / limits.steps


def choose_n_prototypes(size: int | None, n_items: int, limits: Range, stddev: float) -> int:
    """How many prototypes the noise leaves room for, from public numbers alone.

    The entries that an entity of `size` users may contribute are `size` q.  Spread evenly over items, they are as many
    as `MIN_SIGNAL` standard deviations of the noise for each prototype and item.
    """
    if size is None:
        return 1
    entries = size * min(limits.max_entries, n_items)
    return max(1, min(MAX_PROTOTYPES, int(entries / (n_items * MIN_SIGNAL * stddev))))
