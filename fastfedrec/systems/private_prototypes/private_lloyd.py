"""Differentially private k-means in few dimensions: Lloyd's iterations on noisy sums."""

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

_STEPS = 2**12  # of the integer grid in the ball's radius
_FIRST_SHARE = Fraction(1, 10)  # of epsilon, for the mean and the spread
_GROWTH = Fraction(3, 2)  # of epsilon from round to round
_COUNT_SHARE = 4  # a user counts as much as 1 / _COUNT_SHARE of the farthest step
# Chosen on generated points (docs/explanation/systems/private_prototypes/private-kmeans.md): steps count up to so many
# standard deviations a coordinate.
_FARTHEST = Fraction(3, 2)
_LEAST_SPREAD = 0.03  # of the radius
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

    A noisy mean and spread of all points place the first centres, which are those of random normal points.  In each
    round every point goes to the nearest centre, and each centre moves by the noisy sum of its points' distances over
    their noisy number.  In few dimensions this finds much better centres than the swaps of
    `fastfedrec.systems.private_prototypes.private_kmeans`; in many, noise on every coordinate drowns the means.

    **Guarantee.** epsilon-differentially private, all rounds together, for "add_remove" of one user (one row of
    `points`), against everyone who sees the centres; the entity that holds the points is trusted ("entity").

    Parameters
    ----------
    points : ndarray of shape (n_users, n_dimensions), float64
        As `fastfedrec.mechanisms.bounded_rows.project_rows` returns them.  A row that is not finite counts as zeros.
    n_clusters : int
        At least 1.
    radius : float
        From 1e-100 to 1e100: of the ball around 0 that holds points and centres, public.
    n_rounds : int
        From 1 to 255; `lloyd_rounds` chooses from public numbers.
    epsilon : float
        Of the whole run.
    key : Key
        Source of the draws.  It is not used up here: the caller claims it, once for a whole run.
    round : int
        Part of the streams' name, below 2^24: another for each call under one key.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_clusters, n_dimensions), float64
        Released: no longer private.

    Notes
    -----
    All that is released are integers with exact discrete Laplace noise; the rest follows from them (post-processing).
    A tenth of epsilon goes to mean and spread, and each round gets half as much again as the one before.

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
    # A row adds at most the farthest step to a sum; its square norm and its count are no larger.
    points = check_points(points, lambda n_columns: max_summands(2 * _l1_radius(max(n_columns, 1)), DOUBLE_LIMIT))
    n_clusters = check_integer("n_clusters", n_clusters, low=1, high=_MAX_CLUSTERS)
    radius = check_radius(radius)
    n_rounds = check_integer("n_rounds", n_rounds, low=1, high=_MAX_ROUNDS)
    epsilon = check_noise_epsilon("epsilon", epsilon)
    check_instance("key", key, Key, _KEY_REMEDY)
    round_number = check_integer("round", round, low=0, high=2**24 - 1)
    first, *rest = round_epsilons(epsilon, n_rounds)
    inside = np.clip(points, -radius, radius)
    mean, spread = _mean_and_spread(inside / radius, first, key, round_number << 8)
    centers = _into_ball(mean + spread * _normal_centers(n_clusters, points.shape[1], key, round_number, n_threads))
    for number, part in enumerate(rest, 1):
        labels = np.empty(0, dtype=np.int32)  # of nobody, which is no error: it would tell
        if len(inside):
            labels = clustering.assign_rows(inside, centers * radius, n_threads=n_threads)[0]
        farthest = min(
            2 * _l1_radius(points.shape[1]), math.ceil(_FARTHEST * Fraction(spread) * points.shape[1] * _STEPS)
        )
        steps = limit_steps(inside / radius - centers[labels], farthest)
        centers = _into_ball(
            centers + _noisy_steps(steps, labels, n_clusters, farthest, part, key, round_number << 8 | number)
        )
    return centers * radius


def round_epsilons(epsilon: float, n_rounds: int) -> list[Fraction]:
    """What mean and spread cost, and then each round: together epsilon, exactly.

    Parameters
    ----------
    epsilon : float
        Of the whole run.
    n_rounds : int
        At least 1.

    Returns
    -------
    list of Fraction
        ``n_rounds + 1`` of them.

    Examples
    --------
    >>> from fastfedrec.systems.private_prototypes.private_lloyd import round_epsilons
    >>> [str(part) for part in round_epsilons(1.0, 2)], sum(round_epsilons(0.3, 7)) == 0.3
    (['1/10', '9/25', '27/50'], True)
    """
    total = check_exact("epsilon", epsilon, low=0, exclusive=True)
    weights = [_GROWTH**number for number in range(check_integer("n_rounds", n_rounds, low=1, high=_MAX_ROUNDS))]
    left = (1 - _FIRST_SHARE) * total / sum(weights)
    return [_FIRST_SHARE * total, *(left * weight for weight in weights)]


def lloyd_rounds(n_users: int, n_clusters: int, n_dimensions: int, epsilon: float) -> int:
    """How many rounds the noise leaves room for, from public numbers.

    Parameters
    ----------
    n_users : int
        Public: how many there are, about.
    n_clusters, n_dimensions : int
        At least 1.
    epsilon : float
        Of the whole run.

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
    """What an accountant is told of `private_lloyd`.

    Parameters
    ----------
    epsilon : float
        Of the whole run.
    n_rows : int
        Rows (points) of one user, over all entities, at most: epsilon costs so many times as much (group privacy).

    Returns
    -------
    CentralRelease
        For "add_remove" of one user.

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
    """Put each row on the integer grid, and shrink it to at most `farthest` in sum of absolute values.

    Parameters
    ----------
    differences : ndarray of shape (n, n_dimensions), float64
        In units of the radius, between -2 and 2.
    farthest : int
        In steps.

    Returns
    -------
    ndarray of shape (n, n_dimensions), int64
        In steps; shrunk by whole-number division, so that no rounding leaves the bound.
    """
    steps = np.rint(differences * _STEPS).astype(np.int64)
    sizes = np.abs(steps)
    totals = np.maximum(sizes.sum(axis=1, keepdims=True), 1)
    return np.where(totals > farthest, np.sign(steps) * (sizes * farthest // totals), steps)


def _l1_radius(n_dimensions: int) -> int:
    """The largest sum of absolute values in the ball, in steps; rounding may exceed it, and is then limited."""
    return math.ceil(math.sqrt(n_dimensions) * _STEPS)


def _mean_and_spread(points: np.ndarray, epsilon: Fraction, key: Key, stream: int) -> tuple[np.ndarray, float]:
    """The noisy mean, and the standard deviation of a coordinate, in units of the radius."""
    n_dimensions = points.shape[1]
    farthest = _l1_radius(n_dimensions)
    unit = farthest // _COUNT_SHARE  # what one user counts, in steps
    squares = np.rint(np.minimum(np.einsum("nf,nf->n", points, points), 1.0) * farthest).astype(np.int64)
    exact = np.array([*limit_steps(points, farthest).sum(axis=0), squares.sum(), len(points) * unit])
    noisy = _release(exact, 2 * farthest + unit, epsilon, key, "private_lloyd.spread", stream)
    n_users = max(noisy[-1] / unit, 1.0)
    mean = _into_ball(noisy[None, :n_dimensions] / (n_users * _STEPS))[0]
    variance = (noisy[-2] / (n_users * farthest) - mean @ mean) / n_dimensions
    return mean, float(np.clip(math.sqrt(max(variance, 0.0)), _LEAST_SPREAD, 1.0))


def _noisy_steps(
    steps: np.ndarray, labels: np.ndarray, n_clusters: int, farthest: int, epsilon: Fraction, key: Key, stream: int
) -> np.ndarray:
    """Each cluster's noisy sum of steps over its noisy number, in units of the radius."""
    unit = max(1, farthest // _COUNT_SHARE)
    exact = np.empty((n_clusters, steps.shape[1] + 1), dtype=np.int64)
    for f in range(steps.shape[1]):  # doubles hold these integers exactly
        exact[:, f] = np.bincount(labels, weights=steps[:, f], minlength=n_clusters)
    exact[:, -1] = np.bincount(labels, minlength=n_clusters) * unit
    noisy = _release(exact, farthest + unit, epsilon, key, "private_lloyd.sums", stream)
    # A cluster that cannot be told from an empty one moves little.
    least = 2 * float((farthest + unit) / epsilon)
    return noisy[:, :-1] / (np.maximum(noisy[:, -1:], least) / unit * _STEPS)


def _release(exact: np.ndarray, sensitivity: int, epsilon: Fraction, key: Key, purpose: str, stream: int) -> np.ndarray:
    """All numbers with noise: one user changes them by `sensitivity` at most, in sum of absolute values."""
    return DiscreteLaplace(sensitivity / epsilon).add_noise(exact, key=key, purpose=purpose, round=stream)


def _normal_centers(n_clusters: int, n_dimensions: int, key: Key, round_number: int, n_threads: int) -> np.ndarray:
    """Centres of random normal points: where centres are best if nothing else is known."""
    own = Key(key.subkey(f"private_lloyd.start.{round_number}").tobytes())
    size = max(400, 20 * n_clusters)
    draws = own.normal("private_lloyd.start", size=size * n_dimensions).reshape(size, n_dimensions)
    return clustering.kmeans(draws, n_clusters, n_iterations=10, key=own, n_threads=n_threads).centers


def _into_ball(points: np.ndarray) -> np.ndarray:
    """Points beyond the unit ball, to its surface."""
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
