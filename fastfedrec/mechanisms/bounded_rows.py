"""Bounded contributions, random projections of rows, and candidate centres for private k-means."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms import bounded_rows as _kernel
from fastfedrec.core.check import check_array, check_instance, check_integer, check_noise_epsilon, check_real
from fastfedrec.core.exact_sums import check_summands
from fastfedrec.core.numbers import renamed
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace

__all__ = ["grid_candidates", "limit_contributions", "project_rows", "public_candidates"]

_MAX_GRID_DIMENSIONS = 12
MAX_DEPTH, MAX_SHIFTS = 30, 2**8  # limits of `grid_candidates`, whose streams have 8 bits for each
_KEY_REMEDY = "use Key.from_entropy(), or Key.from_seed(n) for a simulation"


def limit_contributions(
    interactions: InteractionsLike, max_entries: int, *, value_range: tuple[float, float], key: Key, round: int = 0
) -> Interactions:
    """Bound each user's contribution to `max_entries` entries, each clipped to a public range.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Each stored entry counts, also an entry of 0.
    max_entries : int
        At least 1.  A user with more entries keeps a uniformly random subset.  It is drawn from the stream of the
        user's global id, and does not depend on the data of other users.
    value_range : tuple of two floats
        Public lower and upper bound; values outside are clipped.
    key : Key
        Source of the draws.  This call does not claim the key: the caller claims it once for a whole run.
    round : int
        Round number, a part of the streams' names.

    Returns
    -------
    Interactions
        Same users and items; values are float64.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.mechanisms.bounded_rows import limit_contributions
    >>> data = Interactions.from_arrays([0, 0, 0, 1], [0, 1, 2, 0], [9.0, 9.0, 9.0, 2.0])
    >>> limited = limit_contributions(data, 2, value_range=(0.0, 5.0), key=Key.from_seed(1))
    >>> limited.values
    array([5., 5., 2.])
    """
    interactions = as_interactions("interactions", interactions, is_private=True)
    max_entries = check_integer("max_entries", max_entries, low=1)
    low, high = check_value_range(value_range)
    check_instance("key", key, Key, _KEY_REMEDY)
    round_number = check_integer("round", round, low=0, high=2**32 - 1)
    mask = np.zeros(interactions.n_interactions, dtype=np.uint8)
    if mask.size:
        subkey = key.subkey("projection.entries")
        _kernel.keep_entries(interactions.indptr, interactions.global_user_ids, mask, subkey, round_number, max_entries)
    limited = interactions.keep_interactions(mask.astype(bool))
    # The storage type depends on the values of all users.  In float64 a clipped value depends on its own user alone.
    return limited._replace(values=np.clip(limited.values_or_ones(), low, high))


def project_rows(
    interactions: InteractionsLike, n_dimensions: int, radius: float, *, key: Key, round: int = 0, n_threads: int = 0
) -> NDArray[np.float64]:
    """Project rows to few dimensions by public random directions, and shrink them into a ball.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Output of `limit_contributions`; missing entries count as 0.
    n_dimensions : int
        At least 1; the directions have independent normal entries of variance 1 / n_dimensions.
    radius : float
        Public radius of the ball, from 1e-100 to 1e100.
    key : Key
        Source of the directions.  They are public, so the key may be public as well.
    round : int
        Round number, a part of the stream's name.
    n_threads : int
        Number of threads, 0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_users, n_dimensions), float64
        Projected rows, which remain each user's private data.
    """
    interactions = as_interactions("interactions", interactions, is_private=True)
    n_dimensions = check_integer("n_dimensions", n_dimensions, low=1)
    radius = check_radius(radius)
    check_instance("key", key, Key, _KEY_REMEDY)
    shape = (interactions.n_items, n_dimensions)
    with renamed("size", "n_items * n_dimensions"):
        draws = key.normal("projection.directions", round=round, size=shape[0] * shape[1])
    out = np.zeros((interactions.n_users, n_dimensions))
    _kernel.project(
        interactions.indptr, interactions.indices, interactions.values_or_ones(),
        draws.reshape(shape) / math.sqrt(n_dimensions), out, radius, resolve_n_threads(n_threads),
    )  # fmt: skip
    return out


def public_candidates(
    n_candidates: int, n_dimensions: int, radius: float, *, key: Key, round: int = 0
) -> NDArray[np.float64]:
    """Draw candidate centres at no privacy cost: uniform points of the ball.

    Parameters
    ----------
    n_candidates, n_dimensions : int
        Number of points and of their coordinates, at least 1.
    radius : float
        Radius of the ball, from 1e-100 to 1e100.
    key : Key
        Source of the points, which are public.
    round : int
        Round number, a part of the streams' names.

    Returns
    -------
    ndarray of shape (n_candidates, n_dimensions), float64
        Points within the ball, up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms.bounded_rows import public_candidates
    >>> points = public_candidates(100, 3, 2.0, key=Key.from_seed(1))
    >>> points.shape, bool((np.linalg.norm(points, axis=1) < 2.001).all())
    ((100, 3), True)
    """
    n_candidates = check_integer("n_candidates", n_candidates, low=1)
    n_dimensions = check_integer("n_dimensions", n_dimensions, low=1)
    radius = check_radius(radius)
    check_instance("key", key, Key, _KEY_REMEDY)
    with renamed("size", "n_candidates * n_dimensions"):
        points = key.normal("projection.candidates", round=round, size=n_candidates * n_dimensions)
    points = points.reshape(n_candidates, n_dimensions)
    # A normal vector has a uniform direction, and U^(1 / n_dimensions) the length of a uniform point of the ball.
    lengths = key.uniform("projection.lengths", round=round, size=n_candidates) ** (1 / n_dimensions)
    return points * (radius * lengths / np.sqrt(np.einsum("if,if->i", points, points)))[:, None]


def grid_candidates(
    points: np.ndarray,
    n_candidates: int,
    *,
    radius: float,
    depth: int,
    n_shifts: int,
    epsilon: float,
    threshold: float | None = None,
    key: Key,
    round: int = 0,
) -> NDArray[np.float64]:
    """Choose candidate centres where points are dense, by halving cubes that have high noisy counts.

    **Guarantee.** The result is n_shifts * depth * epsilon-differentially private for "add_remove" of one user (one row
    of `points`): every one of the 2^n_dimensions children of an active cell is counted, with discrete Laplace noise of
    scale 1 / epsilon, and a user is counted in one cell of a level.

    Parameters
    ----------
    points : ndarray of shape (n_users, n_dimensions), float64
        Output of `project_rows`; at most 12 dimensions.  A row that is not finite counts as zeros.
    n_candidates : int
        Number of centres to return: centres of active cells, the deepest first, completed by `public_candidates`.
    radius : float
        Radius of the ball that holds the points.  A cube's side is 4 times as long, and its position is random.
    depth, n_shifts : int
        Number of halvings (1 to 30) and of cubes (1 to 256).
    epsilon : float
        Epsilon of one level of one cube, from 1e-100 to 1e100.
    threshold : float or None
        Minimum noisy count of an active cell; None takes 2 depth / epsilon.
    key : Key
        Source of the noise.  This call does not claim the key: the caller claims it once for a whole run.
    round : int
        Round number below 2^16, a part of the streams' names.

    Returns
    -------
    ndarray of shape (n_candidates, n_dimensions), float64
        Released centres, covered by the guarantee.

    References
    ----------
    .. [1] Balcan, Dick, Liang, Mou, Zhang, "Differentially private clustering in high-dimensional Euclidean spaces",
       ICML 2017, Algorithm 2.
    """
    points = check_points(points)
    n_dimensions = check_integer("the number of points' columns", points.shape[1], high=_MAX_GRID_DIMENSIONS)
    n_candidates = check_integer("n_candidates", n_candidates, low=1)
    radius = check_radius(radius)
    depth = check_integer("depth", depth, low=1, high=MAX_DEPTH)
    n_shifts = check_integer("n_shifts", n_shifts, low=1, high=MAX_SHIFTS)
    epsilon = check_noise_epsilon("epsilon", epsilon)
    threshold = 2 * depth / epsilon if threshold is None else check_real("threshold", threshold)
    check_instance("key", key, Key, _KEY_REMEDY)
    round_number = check_integer("round", round, low=0, high=2**16 - 1)
    noise = DiscreteLaplace(1 / Fraction(epsilon))
    n_children, bit = 2**n_dimensions, 1 << np.arange(n_dimensions)
    bits = (np.arange(n_children)[:, None] & bit > 0).astype(np.int64)  # (n_children, n_dimensions): upper half or not
    centers_of_level: list[list[np.ndarray]] = [[] for _ in range(depth)]
    bounded = np.clip(points, -3 * radius, 3 * radius)  # no cube extends further, and the arithmetic cannot overflow
    for shift in range(n_shifts):
        # The round's 16 bits, the shift's 8 and the level's 8 name the stream of one level of one cube.
        stream = round_number << 16 | shift << 8
        offset = key.uniform("projection.shift", round=stream, size=n_dimensions)
        origin = -radius * (1 + 2 * offset)
        positions = (bounded - origin) / (4 * radius) * 2**depth
        codes = np.clip(positions, 0, 2**depth - 1).astype(np.int64)
        # The only cell of level 0 is the whole cube, and each user is in it.
        cells = np.zeros((1, n_dimensions), dtype=np.int64)
        cell_of_user = np.zeros(len(points), dtype=np.int64)  # the index of the active cell; -1 without one
        for level in range(depth):
            children = (2 * cells[:, None, :] + bits).reshape(-1, n_dimensions)
            # Each level reads one bit of a code per dimension, so that a user is counted in one child.
            child = cell_of_user * n_children + (codes >> (depth - 1 - level) & 1) @ bit
            counts = np.bincount(child[cell_of_user >= 0], minlength=len(children))
            noisy = noise.add_noise(counts, key=key, purpose="projection.grid", round=stream | level)
            active = noisy >= threshold
            # Users of an inactive cell get -1 and are not counted at deeper levels.
            renumber = np.where(active, np.cumsum(active) - 1, -1)
            cell_of_user = np.where(cell_of_user >= 0, renumber[np.maximum(child, 0)], -1)
            cells = children[active]
            if not len(cells):
                break
            centers_of_level[level].append(origin + (cells + 0.5) * (4 * radius / 2 ** (level + 1)))
    centers = [center for level in reversed(centers_of_level) for center in level]
    public = public_candidates(n_candidates, n_dimensions, radius, key=key, round=round)
    return np.concatenate([*centers, public])[:n_candidates]


def check_value_range(value_range: tuple[float, float]) -> tuple[float, float]:
    """Check that a range is two numbers of at least 0, the first below the second.

    Parameters
    ----------
    value_range : sequence of two numbers
        The caller's argument.

    Returns
    -------
    tuple of two floats
        The checked range.
    """
    if not isinstance(value_range, tuple | list | np.ndarray) or np.ndim(value_range) != 1 or len(value_range) != 2:
        raise TypeError(f"value_range must be a pair (low, high), got {value_range!r}")
    low = check_real("value_range[0]", value_range[0], low=0.0)
    return low, check_real("value_range[1]", value_range[1], low=low, exclusive=True)


def check_radius(radius: float) -> float:
    """Check the radius of the ball that holds projected rows.

    Parameters
    ----------
    radius : float
        The caller's argument.

    Returns
    -------
    float
        The radius, from 1e-100 to 1e100.  Squares of coordinates in the ball, and their sums, keep all their digits.
    """
    return check_real("radius", radius, low=1e-100, high=1e100)


def check_points(points: np.ndarray, max_rows: Callable[[int], int] | None = None) -> np.ndarray:
    """Check projected rows, and replace rows that are not finite by zeros.

    Parameters
    ----------
    points : ndarray of shape (n_users, n_dimensions), float64
        The caller's argument.
    max_rows : callable or None
        Function from the number of columns to the maximum number of rows with exact sums.  A larger number is refused
        before any row is read.

    Returns
    -------
    ndarray
        Checked rows, C-contiguous.
    """
    if max_rows is not None and np.ndim(points) == 2:
        n_rows, n_columns = np.shape(points)
        check_summands("points", (n_rows, n_columns), n_rows, max_rows(n_columns), "use fewer rows or columns")
    points = check_array("points", points, ndim=2, dtypes=(np.float64,), finite=False)
    check_integer("the number of points' columns", points.shape[1], low=1)
    # An error for a row that is not finite would let one user's data decide whether there is a release.
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        points = np.where(bad[:, None], 0.0, points)
    return points
