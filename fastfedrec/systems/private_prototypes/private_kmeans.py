"""Differentially private k-means by swaps among candidate centres, with the events of its cost."""

import functools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.private_prototypes import private_kmeans as _kernel
from fastfedrec.accounting.events import ZCDP, CentralRelease, Composed
from fastfedrec.core.check import (
    check_array,
    check_choice,
    check_exact,
    check_instance,
    check_integer,
    check_noise_epsilon,
    check_real,
)
from fastfedrec.core.exact_sums import INT64_LIMIT, max_summands
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.mechanisms.bounded_rows import MAX_DEPTH, MAX_SHIFTS, check_points, check_radius
from fastfedrec.mechanisms.noise.exact_sampling import exp_minus

__all__ = ["clustering_events", "private_kmeans"]

LEVELS = 65535  # grid levels of a squared distance, which is the sensitivity of every loss
# Weights below exp(-24) of the largest are raised to it, and all have a relative error below 2^-26.  Together this is
# worth less than _ROUNDING nats, which are subtracted from epsilon
# (docs/explanation/systems/private_prototypes/private-kmeans.md).
_MAX_DEPTH = 24
_FRACTION_BITS = 32  # fractional bits of an exponent
_ROUNDING = Fraction(1, 2**23)
_MAX_EPSILON = 1e100  # keeps quotients finite
_MAX_DRAWS = 2**31 - 1
_KEY_REMEDY = "use Key.from_entropy(), or Key.from_seed(n) for a simulation"


def private_kmeans(
    points: np.ndarray,
    candidates: np.ndarray,
    n_clusters: int,
    *,
    radius: float,
    n_swaps: int,
    epsilon: float,
    key: Key,
    round: int = 0,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """Choose centres among candidates by private swaps.

    The start is a set of `n_clusters` random candidates.  Each of `n_swaps` steps draws a pair (centre out, candidate
    in) by an exponential mechanism on the sum of all users' squared distances after the swap.  Finally one of the
    `n_swaps` sets is drawn in the same way.

    **Guarantee.** (n_swaps + 1) * epsilon-differentially private, and (n_swaps + 1) epsilon^2 / 8-zero-concentrated,
    for "add_remove" of one user (one row of `points`), against everyone who sees the centres; the entity that holds
    the points is trusted ("central").  No factor 2 is needed, since an added user raises every loss.

    Parameters
    ----------
    points : ndarray of shape (n_users, n_dimensions), float64
        Rows that `project_rows` returned.  A row that is not finite counts as zeros.
    candidates : ndarray of shape (n_candidates, n_dimensions), float64
        Candidate centres, public or released before.
    n_clusters : int
        Number of clusters, from 1 to the number of candidates.
    radius : float
        Radius of the ball that holds points and candidates; squared distances count up to (2 radius)^2.
    n_swaps : int
        Number of swaps, at least 1 and below 2^31.
    epsilon : float
        Epsilon of one draw, from 2^-16 to 1e100.
    key : Key
        Source of the draws.  The caller claims it, once for a whole run.
    round : int
        Number in the streams' names; it must differ between calls with one key.
    n_threads : int
        Number of threads, 0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_clusters, n_dimensions), float64
        Rows of `candidates`, which may repeat.

    Notes
    -----
    Every user's squared distance is rounded to one of 65,536 levels before it is added, so losses are exact integers
    of sensitivity 65,535.  Each draw takes two words of the key's stream, for any data.  Memory: 2 bytes for each user
    and candidate.

    References
    ----------
    .. [1] Gupta, Ligett, McSherry, Roth, Talwar, "Differentially private combinatorial optimization", SODA 2010.
    .. [2] Balcan, Dick, Liang, Mou, Zhang, "Differentially private clustering in high-dimensional Euclidean spaces",
       ICML 2017, Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
    >>> points = np.repeat([[-1.0], [1.0]], 500, axis=0)
    >>> grid = np.linspace(-1, 1, 21)[:, None]
    >>> centers = private_kmeans(points, grid, 2, radius=1.0, n_swaps=10, epsilon=1.0, key=Key.from_seed(1))
    >>> np.sort(centers, axis=0).round(1).tolist()
    [[-1.0], [1.0]]
    """
    points = check_points(points, lambda _: max_summands(LEVELS, INT64_LIMIT))
    candidates = check_array("candidates", candidates, ndim=2, shape=(None, points.shape[1]), dtypes=(np.float64,))
    n_clusters = check_integer("n_clusters", n_clusters, low=1, high=len(candidates))
    radius = check_radius(radius)
    n_swaps = check_integer("n_swaps", n_swaps, low=1, high=_MAX_DRAWS)
    epsilon = check_real("epsilon", epsilon, low=2.0**-16, high=_MAX_EPSILON)
    check_instance("key", key, Key, _KEY_REMEDY)
    round_number = check_integer("round", round, low=0, high=2**32 - 1)
    n_threads = resolve_n_threads(n_threads)
    # Grid levels of all squared distances, which serve every swap.
    distances = np.empty((len(points), len(candidates)), dtype=np.uint16)
    _kernel.grid_distances(points, candidates, distances, LEVELS / (2 * radius) ** 2, n_threads)
    chosen = key.permutation("private_kmeans.start", round=round_number, size=len(candidates))[:n_clusters]
    sets = np.empty((n_swaps, n_clusters), dtype=np.int64)
    losses = np.empty(n_swaps, dtype=np.int64)
    words = key.words("private_kmeans.swap", round=round_number, size=2 * (n_swaps + 1)).reshape(-1, 2)
    for step in range(n_swaps):
        # Row and column of the drawn loss are the centre to remove and the candidate to add.
        after = swap_losses(distances, chosen, n_threads).reshape(-1)
        drawn = draw_loss(after, epsilon, words[step])
        chosen[drawn // len(candidates)] = drawn % len(candidates)
        sets[step], losses[step] = chosen, after[drawn]
    return candidates[sets[draw_loss(losses, epsilon, words[n_swaps])]]


def swap_losses(distances: np.ndarray, chosen: np.ndarray, n_threads: int) -> NDArray[np.int64]:
    """Compute the loss after each swap of a chosen candidate for any candidate.

    Parameters
    ----------
    distances : ndarray of shape (n_users, n_candidates), uint16
        Distance of each user to each candidate.
    chosen : ndarray of shape (n_clusters,), int64
        Chosen candidates.
    n_threads : int
        Number of threads, at least 1.

    Returns
    -------
    ndarray of shape (n_clusters, n_candidates), int64
        Sums over users of the distance to the nearest candidate that is chosen after the swap.
    """
    n_candidates = distances.shape[1]
    base_sums = np.zeros((n_threads, n_candidates), dtype=np.int64)
    increases = np.zeros((n_threads, len(chosen), n_candidates), dtype=np.int64)
    _kernel.swap_sums(distances, chosen, base_sums, increases, n_threads)
    return base_sums.sum(axis=0) + increases.sum(axis=0)


def selection_weights(losses: np.ndarray, epsilon: float, sensitivity: int = LEVELS) -> NDArray[np.uint64]:
    """Return integer weights for a draw of losses: about 2^64 exp(-epsilon (loss - minimum) / sensitivity).

    Parameters
    ----------
    losses : ndarray of shape (n,), int64
        Losses; one user moves all of them in the same direction.
    epsilon : float
        Epsilon of one draw, at least 2^-16.
    sensitivity : int
        Largest change of a loss by one user, below 2^32.

    Returns
    -------
    ndarray of shape (n,), uint64
        Weights, at least 2^29: a loss counts as at most 24 sensitivity / epsilon above the minimum.
    """
    scaled = (Fraction(epsilon) - _ROUNDING) / sensitivity * 2**_FRACTION_BITS
    # scaled = multiplier 2^shift / 2^64, with a multiplier of 64 bits that is rounded down.
    shift = 0
    while scaled >= 2**shift:
        shift += 1
    multiplier = math.floor(scaled * 2 ** (64 - shift))
    max_depth = _MAX_DEPTH << _FRACTION_BITS
    max_excess = math.ceil(max_depth / scaled) + 1
    out = np.empty(len(losses), dtype=np.uint64)
    _kernel.weights(losses, out, *_exponentials(), int(losses.min()), max_excess, multiplier, shift, max_depth)
    return out


@functools.cache
def _exponentials() -> tuple[np.ndarray, np.ndarray]:
    """Return 2^64 exp(-x), rounded down and below 2^64, for x = i 2^-4 and for i 2^-11, 2^-18, 2^-25, 2^-32."""

    def table(n: int, unit_bits: int) -> list[int]:
        return [min(exp_minus(Fraction(i, 2**unit_bits), 64), 2**64 - 1) for i in range(n)]

    coarse = np.array(table(_MAX_DEPTH * 16 + 1, 4), dtype=np.uint64)
    return coarse, np.array([table(128, unit_bits) for unit_bits in (11, 18, 25, 32)], dtype=np.uint64)


def draw_loss(losses: np.ndarray, epsilon: float, words: np.ndarray, sensitivity: int = LEVELS) -> int:
    """Draw an index in proportion to its weight: an exponential mechanism that uses two words for any losses.

    Parameters
    ----------
    losses : ndarray of shape (n,), int64
        Losses, see `selection_weights`.
    epsilon : float
        Epsilon of the draw, at least 2^-16.
    words : ndarray of shape (2,), uint64
        Uniform bits.
    sensitivity : int
        Largest change of a loss by one user, see `selection_weights`.

    Returns
    -------
    int
        Index from 0 to n - 1.
    """
    weights = selection_weights(losses, epsilon, sensitivity)
    mask = np.uint64(2**32 - 1)
    # Running sums of 64-bit weights in two halves, since the sum may exceed 64 bits.
    low = np.cumsum(weights & mask)
    high = np.cumsum(weights >> np.uint64(32)) + (low >> np.uint64(32))
    low &= mask
    high_word, low_word = words.tolist()
    # A uniform 128-bit number times the sum of weights, divided by 2^128: exact integer arithmetic without rejection.
    target = (high_word << 64 | low_word) * (int(high[-1]) << 32 | int(low[-1])) >> 128
    target_high, target_low = np.uint64(target >> 32), np.uint64(target & (2**32 - 1))
    return int(np.count_nonzero((high < target_high) | ((high == target_high) & (low <= target_low))))


def clustering_events(
    *,
    swap_epsilon: float,
    n_swaps: int,
    grid_epsilon: float | None = None,
    depth: int = 1,
    n_shifts: int = 1,
    accounting: str = "pure",
    n_rows: int = 1,
) -> Composed:
    """Return the events of `private_kmeans` and, if `grid_epsilon` is given, of `grid_candidates`.

    Parameters
    ----------
    swap_epsilon : float
        Epsilon of one draw.
    n_swaps : int
        Number of swaps of `private_kmeans`; one more draw chooses among their results.
    grid_epsilon : float or None
        Epsilon of one level of one cube; None for public candidates.
    depth, n_shifts : int
        Number of levels and of cubes of `grid_candidates`.
    accounting : {"pure", "zcdp"}
        Guarantee of each release that is used: a draw is swap_epsilon-differentially private, and
        swap_epsilon^2 / 8-zero-concentrated, a quarter of the rho that the former implies.
    n_rows : int
        Largest number of rows (points) of one user, over all entities: it multiplies epsilon, and its square multiplies
        rho (group privacy).

    Returns
    -------
    Composed
        Events for "add_remove" of one user.

    References
    ----------
    .. [1] Cesar, Rogers, "Bounding, concentrating, and truncating: unifying privacy loss composition for data
       analytics", ALT 2021 (a mechanism of bounded range epsilon is epsilon^2 / 8-zCDP).

    Examples
    --------
    >>> from fastfedrec.accounting import PureAccountant
    >>> from fastfedrec.systems.private_prototypes.private_kmeans import clustering_events
    >>> PureAccountant().compose(clustering_events(swap_epsilon=0.25, n_swaps=3)).get_epsilon()
    1.0
    """
    swap_epsilon = check_noise_epsilon("swap_epsilon", swap_epsilon)
    n_draws = check_integer("n_swaps", n_swaps, low=1, high=_MAX_DRAWS) + 1
    check_choice("accounting", accounting, ("pure", "zcdp"))
    n_rows = check_integer("n_rows", n_rows, low=1)
    parts = [selection_event("k-means swap", swap_epsilon, n_draws, accounting, n_rows)]
    if grid_epsilon is not None:
        grid_epsilon = check_noise_epsilon("grid_epsilon", grid_epsilon)
        depth = check_integer("depth", depth, low=1, high=MAX_DEPTH)
        count = depth * check_integer("n_shifts", n_shifts, low=1, high=MAX_SHIFTS)
        name = "noisy counts of a grid"
        parts.append(
            _pure(name, n_rows * Fraction(grid_epsilon), count)
            if accounting == "pure"
            else _zcdp(name, (n_rows * Fraction(grid_epsilon)) ** 2 / 2, count)
        )
    return Composed(tuple(parts), mechanism="private k-means")


def selection_event(
    mechanism: str, epsilon: float, count: int, accounting: str, n_rows: int = 1
) -> CentralRelease | ZCDP:
    """Return the event of several exponential mechanisms on monotone scores.

    Parameters
    ----------
    mechanism : str
        Name, for the ledger.
    epsilon : float
        Epsilon of each mechanism.
    count : int
        Number of mechanisms.
    accounting : {"pure", "zcdp"}
        See `clustering_events`.
    n_rows : int
        See `clustering_events`.

    Returns
    -------
    CentralRelease or ZCDP
        Event for "add_remove" of one user.
    """
    check_choice("accounting", accounting, ("pure", "zcdp"))
    cost = check_integer("n_rows", n_rows, low=1) * check_exact("epsilon", epsilon, low=0, exclusive=True)
    if accounting == "zcdp":
        return _zcdp(mechanism, cost**2 / 8, count)
    return replace(_pure(mechanism, cost, count), n_choices=1)


def _pure(mechanism: str, epsilon: Fraction, count: int) -> CentralRelease:
    return CentralRelease(mechanism, float_up(epsilon), count=count, trust="entity")


def _zcdp(mechanism: str, rho: Fraction, count: int) -> ZCDP:
    return ZCDP(mechanism, float_up(rho), count=count, neighboring="add_remove", sampling="none", trust="entity")
