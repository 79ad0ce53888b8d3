"""Differentially private k-means in few dimensions by Lloyd's iterations on noisy sums."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting.events import CentralRelease
from fastfedrec.compute import clustering
from fastfedrec.core.check import check_epsilon, check_exact, check_instance, check_integer, check_noise_epsilon
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, max_summands
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.bounded_rows import check_points, check_radius
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace

__all__ = ["lloyd_event", "lloyd_rounds", "private_lloyd"]

_STEPS = 2**12  # steps of the integer grid per radius of the ball
_FIRST_SHARE = Fraction(1, 10)  # share of epsilon for the mean and the spread
_GROWTH = Fraction(3, 2)  # factor of epsilon from round to round
_COUNT_SHARE = 4  # a user's count has the weight of the largest step divided by this
# Largest step, in standard deviations per coordinate; tuned on generated points
# (docs/explanation/systems/private_prototypes/private-kmeans.md).
_MAX_STEP_SPREADS = Fraction(3, 2)
_MIN_SPREAD = 0.03  # smallest spread, relative to the radius
_MAX_ROUNDS, _MAX_CLUSTERS = 2**8 - 1, 2**16
_KEY_REMEDY = "use Key.from_entropy(), or Key.from_seed(n) for a simulation"


def private_lloyd(
    points: np.ndarray,
    n_clusters: int,
    *,
    radius: float,
    n_rounds: int,
    epsilon: float,
    key: Key,
    round: int = 0,
    n_threads: int = 0,
) -> NDArray[np.float64]:
    """Find centres by Lloyd's iterations on noisy sums.

    The first centres are clusters of random normal points, scaled to a noisy mean and spread of all points.  In each
    round every point is assigned to the nearest centre, and each centre moves by the noisy sum of its points'
    differences divided by their noisy number.  In few dimensions this finds much better centres than the swaps of
    `fastfedrec.systems.private_prototypes.private_kmeans`; in many dimensions the noise on every coordinate exceeds the
    means.

    **Guarantee.** epsilon-differentially private, all rounds together, for "add_remove" of one user (one row of
    `points`), against everyone who sees the centres; the entity that holds the points is trusted ("entity").

    Parameters
    ----------
    points : ndarray of shape (n_users, n_dimensions), float64
        Rows that `fastfedrec.mechanisms.bounded_rows.project_rows` returned.  A row that is not finite counts as zeros.
    n_clusters : int
        Number of clusters, at least 1.
    radius : float
        Public radius of the ball around 0 that holds points and centres, from 1e-100 to 1e100.
    n_rounds : int
        Number of rounds, from 1 to 255; `lloyd_rounds` chooses it from public numbers.
    epsilon : float
        Epsilon of the whole run.
    key : Key
        Source of the draws.  The caller claims it, once for a whole run.
    round : int
        Number in the streams' names, below 2^24; it must differ between calls with one key.
    n_threads : int
        Number of threads, 0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_clusters, n_dimensions), float64
        Released centres, which are no longer private.

    Notes
    -----
    All releases are integers with exact discrete Laplace noise, and the centres are post-processing.  A tenth of
    epsilon goes to mean and spread, and the epsilon of a round is 1.5 times the epsilon of the round before.

    References
    ----------
    .. [1] Blum, Dwork, McSherry, Nissim, "Practical privacy: the SuLQ framework", PODS 2005.
    .. [2] Su, Cao, Li, Bertino, Jin, "Differentially private k-means clustering", CODASPY 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd
    >>> points = np.repeat([[-0.7], [0.3]], 5000, axis=0)
    >>> centers = private_lloyd(points, 2, radius=1.0, n_rounds=4, epsilon=1.0, key=Key.from_seed(1))
    >>> np.sort(centers, axis=0).round(1).tolist()
    [[-0.7], [0.3]]
    """
    # A row adds at most the largest step to a sum; its squared norm and its count are no larger.
    points = check_points(points, lambda n_columns: max_summands(2 * _l1_radius(max(n_columns, 1)), DOUBLE_LIMIT))
    n_clusters = check_integer("n_clusters", n_clusters, low=1, high=_MAX_CLUSTERS)
    radius = check_radius(radius)
    n_rounds = check_integer("n_rounds", n_rounds, low=1, high=_MAX_ROUNDS)
    epsilon = check_noise_epsilon("epsilon", epsilon)
    check_instance("key", key, Key, _KEY_REMEDY)
    round_number = check_integer("round", round, low=0, high=2**24 - 1)
    first_part, *round_parts = round_epsilons(epsilon, n_rounds)
    clipped = np.clip(points, -radius, radius)
    mean, spread = _mean_and_spread(clipped / radius, first_part, key, round_number << 8)
    centers = _into_ball(mean + spread * _normal_centers(n_clusters, points.shape[1], key, round_number, n_threads))
    for number, part in enumerate(round_parts, 1):
        labels = np.empty(0, dtype=np.int32)  # without users, where an error would reveal that there are none
        if len(clipped):
            labels = clustering.assign_rows(clipped, centers * radius, n_threads=n_threads)[0]
        max_step = min(
            2 * _l1_radius(points.shape[1]), math.ceil(_MAX_STEP_SPREADS * Fraction(spread) * points.shape[1] * _STEPS)
        )
        # Steps of at most a few spreads keep the sensitivity, and so the noise, small.
        steps = limit_steps(clipped / radius - centers[labels], max_step)
        centers = _into_ball(
            centers + _noisy_steps(steps, labels, n_clusters, max_step, part, key, round_number << 8 | number)
        )
    return centers * radius


def round_epsilons(epsilon: float, n_rounds: int) -> list[Fraction]:
    """Divide epsilon exactly among mean and spread, and then the rounds.

    Parameters
    ----------
    epsilon : float
        Epsilon of the whole run.
    n_rounds : int
        Number of rounds, at least 1.

    Returns
    -------
    list of Fraction
        ``n_rounds + 1`` parts, which add up to epsilon exactly.

    Examples
    --------
    >>> from fastfedrec.systems.private_prototypes.private_lloyd import round_epsilons
    >>> [str(part) for part in round_epsilons(1.0, 2)], sum(round_epsilons(0.3, 7)) == 0.3
    (['1/10', '9/25', '27/50'], True)
    """
    total = check_exact("epsilon", epsilon, low=0, exclusive=True)
    weights = [_GROWTH**number for number in range(check_integer("n_rounds", n_rounds, low=1, high=_MAX_ROUNDS))]
    remaining = (1 - _FIRST_SHARE) * total / sum(weights)
    return [_FIRST_SHARE * total, *(remaining * weight for weight in weights)]


def lloyd_rounds(n_users: int, n_clusters: int, n_dimensions: int, epsilon: float) -> int:
    """Choose the number of rounds by the noise, from public numbers.

    Parameters
    ----------
    n_users : int
        Public approximate number of users.
    n_clusters, n_dimensions : int
        Number of clusters and of dimensions, at least 1.
    epsilon : float
        Epsilon of the whole run.

    Returns
    -------
    int
        From 2 to 10: a third of the root of n_users epsilon / (n_clusters n_dimensions), rounded down.

    Examples
    --------
    >>> from fastfedrec.systems.private_prototypes.private_lloyd import lloyd_rounds
    >>> lloyd_rounds(6_000, 10, 4, 1.0), lloyd_rounds(6_000, 10, 4, 10.0)
    (4, 10)
    """
    n_users = check_integer("n_users", n_users, low=1)
    cells = check_integer("n_clusters", n_clusters, low=1) * check_integer("n_dimensions", n_dimensions, low=1)
    return min(10, max(2, int(math.sqrt(n_users * check_noise_epsilon("epsilon", epsilon) / cells) / 3)))


def lloyd_event(epsilon: float, n_rows: int = 1) -> CentralRelease:
    """Return the event of `private_lloyd`.

    Parameters
    ----------
    epsilon : float
        Epsilon of the whole run.
    n_rows : int
        Largest number of rows (points) of one user, over all entities, which multiplies epsilon (group privacy).

    Returns
    -------
    CentralRelease
        Event for "add_remove" of one user.

    Examples
    --------
    >>> from fastfedrec.accounting import PureAccountant
    >>> from fastfedrec.systems.private_prototypes.private_lloyd import lloyd_event
    >>> PureAccountant().compose(lloyd_event(0.5, n_rows=2)).get_epsilon()
    1.0
    """
    total = check_integer("n_rows", n_rows, low=1) * Fraction(check_epsilon("epsilon", epsilon))
    return CentralRelease("noisy Lloyd rounds", float_up(total), trust="entity")


def limit_steps(differences: np.ndarray, farthest: int) -> NDArray[np.int64]:
    """Round each row to the integer grid, and shrink it to at most `farthest` in sum of absolute values.

    Parameters
    ----------
    differences : ndarray of shape (n, n_dimensions), float64
        Differences in units of the radius, between -2 and 2.
    farthest : int
        Bound of the sum of absolute values, in steps.

    Returns
    -------
    ndarray of shape (n, n_dimensions), int64
        Steps; integer division shrinks them, so that rounding cannot exceed the bound.
    """
    steps = np.rint(differences * _STEPS).astype(np.int64)
    sizes = np.abs(steps)
    totals = np.maximum(sizes.sum(axis=1, keepdims=True), 1)
    # Integer division rounds towards zero, so the bound holds exactly.
    return np.where(totals > farthest, np.sign(steps) * (sizes * farthest // totals), steps)


def _l1_radius(n_dimensions: int) -> int:
    """Return the largest sum of absolute values in the ball, in steps; `limit_steps` removes any excess by rounding."""
    return math.ceil(math.sqrt(n_dimensions) * _STEPS)


def _mean_and_spread(points: np.ndarray, epsilon: Fraction, key: Key, stream: int) -> tuple[np.ndarray, float]:
    """Return the noisy mean, and the standard deviation of a coordinate, in units of the radius."""
    n_dimensions = points.shape[1]
    max_step = _l1_radius(n_dimensions)
    count_steps = max_step // _COUNT_SHARE  # weight of one user's count, in steps
    squares = np.rint(np.minimum(np.einsum("nf,nf->n", points, points), 1.0) * max_step).astype(np.int64)
    exact = np.array([*limit_steps(points, max_step).sum(axis=0), squares.sum(), len(points) * count_steps])
    noisy = _release(exact, 2 * max_step + count_steps, epsilon, key, "private_lloyd.spread", stream)
    # The noisy number of users divides the sums, so it must not be near 0.
    n_users = max(noisy[-1] / count_steps, 1.0)
    mean = _into_ball(noisy[None, :n_dimensions] / (n_users * _STEPS))[0]
    # E|x|^2 - |mean|^2 is the total variance over all coordinates.
    variance = (noisy[-2] / (n_users * max_step) - mean @ mean) / n_dimensions
    return mean, float(np.clip(math.sqrt(max(variance, 0.0)), _MIN_SPREAD, 1.0))


def _noisy_steps(
    steps: np.ndarray, labels: np.ndarray, n_clusters: int, max_step: int, epsilon: Fraction, key: Key, stream: int
) -> np.ndarray:
    """Return each cluster's noisy sum of steps divided by its noisy number, in units of the radius."""
    count_steps = max(1, max_step // _COUNT_SHARE)
    exact = np.empty((n_clusters, steps.shape[1] + 1), dtype=np.int64)
    for f in range(steps.shape[1]):  # doubles hold these integers exactly
        exact[:, f] = np.bincount(labels, weights=steps[:, f], minlength=n_clusters)
    exact[:, -1] = np.bincount(labels, minlength=n_clusters) * count_steps
    noisy = _release(exact, max_step + count_steps, epsilon, key, "private_lloyd.sums", stream)
    # A cluster that the noise may hide moves little.
    min_count = 2 * float((max_step + count_steps) / epsilon)
    return noisy[:, :-1] / (np.maximum(noisy[:, -1:], min_count) / count_steps * _STEPS)


def _release(exact: np.ndarray, sensitivity: int, epsilon: Fraction, key: Key, purpose: str, stream: int) -> np.ndarray:
    """Return all numbers with noise; one user changes them by at most `sensitivity` in sum of absolute values."""
    return DiscreteLaplace(sensitivity / epsilon).add_noise(exact, key=key, purpose=purpose, round=stream)


def _normal_centers(n_clusters: int, n_dimensions: int, key: Key, round_number: int, n_threads: int) -> np.ndarray:
    """Return centres of random normal points, a good start without other knowledge."""
    start_key = Key(key.subkey(f"private_lloyd.start.{round_number}").tobytes())
    # The points are public and depend on the key only.
    size = max(400, 20 * n_clusters)
    draws = start_key.normal("private_lloyd.start", size=size * n_dimensions).reshape(size, n_dimensions)
    return clustering.kmeans(draws, n_clusters, n_iterations=10, key=start_key, n_threads=n_threads).centers


def _into_ball(points: np.ndarray) -> np.ndarray:
    """Move points beyond the unit ball to its surface."""
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
