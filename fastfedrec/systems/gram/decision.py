"""Choice between popularity and a personal model, and of its ridge, from one noisy matrix by splitting its noise.

The released matrix is P = C + s W with Gaussian W and a public s.  With public Gaussian E, the matrices
P + sqrt(a) s E and P - s E / sqrt(a) have independent noise.  A candidate is fitted to the first and evaluated on the
second.  The choice is post-processing of the release, so it costs no privacy.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.memory import Array, Arrays
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.systems._linear_scores import LinearScores
from fastfedrec.systems._pair_matrix import Candidate, Decision, PairMatrix
from fastfedrec.systems.gram.shrinkage import RANK, _is_full, denoising_memory

__all__ = ["RIDGES", "Estimator", "best_estimator", "choose_candidate", "decision_memory", "named_estimators"]

#: Candidate ridges, in units of the standard deviation of an entry's noise times the root of the number of items.
RIDGES = (0.25, 1.0, 4.0, 16.0)
_PERSONAL_WEIGHTS = (1.0, 2.5)
_SPLIT = 0.5  # a: training noise has 1.5 times the variance of the release, test noise 3 times
_NOISE = "gram.noise_splitting"  # a public stream of E
_ROWS = 1024  # rows of the matrix with draws in memory at the same time


#: Function of a noisy matrix, which it may overwrite, and of its noise; returns factors of the matrix behind it.
Estimator = Callable[[NDArray[np.float32], float], NDArray[np.float64]]


def named_estimators(
    features: AlignedFeatures | None, estimate: Callable[[AlignedFeatures | None, NDArray[np.float32], float], Any]
) -> dict[str, Estimator]:
    """Return the estimators to choose from: without item features and, if there are any, with them."""
    given = {"pairs": None} if features is None else {"pairs": None, "pairs and item features": features}
    return {name: functools.partial(estimate, value) for name, value in given.items()}


def best_estimator(pairs: PairMatrix, estimators: Mapping[str, Estimator], n_threads: int = 1) -> str:
    """Return the name of the estimator that scores best on independent noise."""
    if len(estimators) == 1:
        return next(iter(estimators))
    scores = choose_candidate(pairs, estimators, n_threads=n_threads).scores
    return max((one for one in scores if one.personal_weight), key=scores.__getitem__).estimator


@one_blas_thread()
def choose_candidate(
    pairs: PairMatrix, estimators: Mapping[str, Estimator], ridges: Sequence[float] = RIDGES, n_threads: int = 1
) -> Decision:
    """Choose the personal weight, the ridge and the estimator that score best on independent noise.

    The result does not depend on `n_threads`.

    References
    ----------
    .. [1] Oliveira, Lei, Tibshirani, "Unbiased risk estimation in the normal means problem via coupled bootstrap
       techniques", Electronic Journal of Statistics, 2024.
    """
    popularity = Candidate(0.0, min(ridges), next(iter(estimators)))
    candidates = [popularity] + [
        Candidate(weight, ridge, name) for name in estimators for weight in _PERSONAL_WEIGHTS for ridge in ridges
    ]
    noise = pairs.noise * math.sqrt(1 + _SPLIT)

    @one_blas_thread()
    def evaluate(training: NDArray[np.float32]) -> tuple[list[float], dict[Candidate, float], dict[str, np.ndarray]]:
        factors = {name: estimate(training.copy(), noise) for name, estimate in estimators.items()}
        test, cosines, lengths = _test_matrix(pairs, training), [], {}
        for candidate in candidates:
            scoring = pairs.score(factors[candidate.estimator], candidate, noise)
            agreement, lengths[candidate] = _agreement(pairs, test, scoring)
            cosines.append(agreement / lengths[candidate])
        return cosines, lengths, factors

    # The two training matrices have E and -E, so that the first order of E cancels in the mean of their scores.
    trainings = _training_matrices(pairs)
    if (n_at_once := _n_at_once(len(pairs.values), n_threads)) > 1:
        with ThreadPoolExecutor(n_at_once) as pool:
            evaluated = list(pool.map(evaluate, [training.copy() for training in trainings]))
    else:
        evaluated = list(map(evaluate, trainings))
    (first, *_), (last, lengths, factors) = evaluated
    scores = dict(zip(candidates, (np.add(first, last) / 2).tolist(), strict=True))

    def weights(candidate: Candidate) -> tuple[np.ndarray, ...]:  # recomputed to save memory
        return pairs.score(factors[candidate.estimator], candidate, noise).weights(1 / lengths[candidate])

    best = max(candidates[1:], key=scores.__getitem__)
    reference = abs(scores[popularity]) or 1.0
    gain = (scores[best] - scores[popularity]) / reference
    error = pairs.noise * _spread(weights(best), weights(popularity)) / reference
    return Decision(best if gain > 0 else popularity, scores, gain, error)


def decision_memory(n_items: int, n_threads: int) -> Arrays:
    """Return the arrays of a decision at its peak, without the released pairs."""
    n = _n_at_once(n_items, n_threads)
    arrays = {"pairs for training": Array.of("float32", n_items, n_items), **denoising_memory(n_items)}
    return {name: Array(dtype, (n, *shape)) for name, (dtype, shape) in arrays.items()}


def _n_at_once(n_items: int, n_threads: int) -> int:
    """Return the number of training matrices that are evaluated at the same time, at most 2."""
    # Products with a large matrix use all threads themselves, and the memory of two estimates would limit a catalogue.
    return min(2, resolve_n_threads(n_threads)) if _is_full(n_items, RANK) else 1


def _training_matrices(pairs: PairMatrix) -> Iterator[NDArray[np.float32]]:
    """Yield P + sqrt(a) s E and P - sqrt(a) s E, in one array."""
    training, scale, n_items = pairs.values.copy(), pairs.noise * math.sqrt(_SPLIT), len(pairs.values)
    for start in range(0, n_items, _ROWS):
        stop, key = min(start + _ROWS, n_items), Key.from_seed(0)
        draws = key.normal(_NOISE, round=start // _ROWS, size=(stop - start) * (n_items - start)) * scale
        block = np.triu(draws.astype(np.float32).reshape(stop - start, -1), 1)
        training[start:stop, start:] += block
        training[start:, start:stop] += block.T
        del draws, block  # the estimates between two matrices are the peak of memory
    yield training
    np.subtract(pairs.values, training, out=training)
    training += pairs.values
    yield training


def _test_matrix(pairs: PairMatrix, training: np.ndarray) -> NDArray[np.float32]:
    """Return P - s E / sqrt(a) for the training matrix P + sqrt(a) s E."""
    # P - (training - P) / a, in place.
    test = pairs.values - training
    test *= 1 / _SPLIT
    test += pairs.values
    return test


def _agreement(pairs: PairMatrix, test: np.ndarray, scoring: LinearScores) -> tuple[float, float]:
    """Return <G, B> and sqrt(tr(B'GB)), infinite for a negative trace, for weights B and the test matrix G."""
    # B = L R' - D with n x k matrices, so that G is multiplied with L only.  If noise makes the trace negative, the
    # candidate cannot be distinguished from noise.
    lefts, rights, diagonal = scoring.left, scoring.right, scoring.diagonal
    products = (test @ lefts.astype(np.float32)).astype(np.float64)
    # G is the test matrix with the shared part off the diagonal, and the users' diagonal.
    if (shared := pairs.popularity) is not None:
        products += np.outer(shared, shared @ lefts) - np.square(shared)[:, None] * lefts
    products += pairs.item_squares[:, None] * lefts
    crossed = np.einsum("ij,ij->i", products, rights)
    agreement = crossed.sum() - pairs.item_squares @ diagonal
    # tr(B'GB) = tr(R L'G L R') - 2 tr(D G L R') + tr(D G D), where `crossed` is the diagonal of G L R'.
    square = np.vdot(lefts.T @ products, rights.T @ rights)
    square = square - 2 * crossed @ diagonal + pairs.item_squares @ np.square(diagonal)
    return float(agreement), math.sqrt(square) if square > 0 else math.inf


def _spread(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> float:
    """Return the standard deviation of <W, B_1 - B_2> for symmetric W of unit variance off its diagonal."""
    # The difference is L R' - D with stacked factors; its variance is the sum of (B_ij + B_ji)^2 over pairs i < j.
    lefts, rights = np.column_stack([one[0], other[0]]), np.column_stack([one[1], -other[1]])
    diagonal = one[2] - other[2]
    crossed = rights.T @ lefts
    square = np.vdot(lefts.T @ lefts, rights.T @ rights) + np.vdot(crossed, crossed.T) - 2 * diagonal @ diagonal
    return math.sqrt(max(float(square), 0.0))
