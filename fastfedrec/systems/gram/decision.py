"""Choice between popularity and a personal model, and of its ridge, from one noisy matrix by splitting its noise.

The released matrix is P = C + s W with Gaussian W and a public s.  With public Gaussian E, the matrices
P + sqrt(a) s E and P - s E / sqrt(a) have independent noise.  A candidate is fitted to the first and evaluated on the
second.  The choice is post-processing of the release, so it costs no privacy.  See
docs/explanation/systems/gram/dp-gram.md.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.systems.gram.scoring import LinearScores, linear_scores

__all__ = [
    "RIDGES",
    "Candidate",
    "Decision",
    "Estimator",
    "PairMatrix",
    "best_estimator",
    "choose_candidate",
    "item_sums",
    "named_estimators",
]

#: Candidate ridges, in units of the standard deviation of an entry's noise times the root of the number of items.
RIDGES = (0.25, 1.0, 4.0, 16.0)
_PERSONAL_WEIGHTS = (1.0, 2.5)
_SPLIT = 0.5  # a: training noise has 1.5 times the variance of the release, test noise 3 times
_NOISE = "gram.noise_splitting"  # a public stream of E
_ROWS = 1024  # rows of the matrix with draws in memory at the same time


@dataclass(frozen=True)
class Candidate:
    """A setting of the model that is compared with others.

    Parameters
    ----------
    personal_weight : float
        Factor of the matrix of pairs that is added to popularity; 0 for popularity alone.
    ridge : float
        Ridge, in units of the standard deviation of an entry's noise times the root of the number of items.
    estimator : str
        Name of the estimator of the matrix, such as one that uses item features.
    """

    personal_weight: float
    ridge: float
    estimator: str = "pairs"


@dataclass(frozen=True)
class Decision:
    """The candidates, their scores on the test half of the noise, and the chosen one.

    A score estimates a cosine, up to a factor that all candidates share.  The cosine is between a user's items and the
    scores that the device computes for them from the user's other items.

    Parameters
    ----------
    chosen : Candidate
        The best personal candidate if its gain is above 0, else popularity.  While popularity can have more of the
        budget, DPGram demands a gain above an error, and ShuffledSketchGram takes popularity if noise covers it.
    scores : mapping of Candidate to float
        Score of each candidate.
    gain : float
        Score of the best personal candidate less the score of popularity.  DPGram: difference of nDCG@10 among 100.
        ShuffledSketchGram: as a share of the score of popularity.
    error : float
        Standard deviation of `gain` by the noise of the release, for given weights and a given score of popularity.
    """

    chosen: Candidate
    scores: Mapping[Candidate, float]
    gain: float
    error: float

    @property
    def is_personal(self) -> bool:
        """True if users receive personal scores, and not popularity."""
        return self.chosen.personal_weight > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain values, one row for each candidate.

        Returns
        -------
        dict
            Values for JSON; `candidates` is a list of rows for a frame.
        """
        return {
            "is_personal": self.is_personal, "gain": self.gain, "error": self.error,
            "candidates": [
                {**vars(candidate), "score": score, "chosen": candidate == self.chosen}
                for candidate, score in self.scores.items()
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class PairMatrix:
    """A released matrix of item pairs, with public numbers that describe it."""

    values: NDArray[np.float32]  # symmetric, with zeros on the diagonal, (n_items, n_items)
    noise: float  # standard deviation of an entry's noise
    item_squares: NDArray[np.float64]  # diagonal of the users' matrix, (n_items,)
    # Factor of the part that all users share, which `values` do not contain, (n_items,); None if they contain it.
    popularity: NDArray[np.float64] | None = None

    def join(self, factors: np.ndarray, personal_weight: float) -> NDArray[np.float64]:
        """Return factors of the whole matrix: popularity, and the personal factors times the root of a weight."""
        scale = math.sqrt(personal_weight)
        if self.popularity is not None:
            shared = self.popularity[:, None]
            return np.column_stack([scale * factors, shared]) if personal_weight else shared
        if personal_weight:  # the strongest factor is the shared part
            return np.column_stack([scale * factors[:, 1:], factors[:, :1]])
        sums = np.maximum(item_sums(factors), 0.0)
        return sums[:, None] / math.sqrt(max(float(sums.sum()), math.ulp(0.0)))

    def score(self, factors: np.ndarray, candidate: Candidate, noise: float) -> LinearScores:
        """Return the scoring of a candidate for factors with noise of this standard deviation."""
        ridge = candidate.ridge * noise * math.sqrt(len(self.item_squares))
        return linear_scores(self.join(factors, candidate.personal_weight), self.item_squares, ridge)


#: Function of a noisy matrix, which it may overwrite, and of its noise; returns factors of the matrix behind it.
Estimator = Callable[[NDArray[np.float32], float], NDArray[np.float64]]


def item_sums(factors: np.ndarray) -> NDArray[np.float64]:
    """Return the sums of the rows of L L'."""
    return factors @ factors.sum(axis=0)


def named_estimators(
    features: AlignedFeatures | None, estimate: Callable[[AlignedFeatures | None, NDArray[np.float32], float], Any]
) -> dict[str, Estimator]:
    """Return the estimators to choose from: without item features and, if there are any, with them."""
    given = {"pairs": None} if features is None else {"pairs": None, "pairs and item features": features}
    return {name: functools.partial(estimate, value) for name, value in given.items()}


def best_estimator(pairs: PairMatrix, estimators: Mapping[str, Estimator]) -> str:
    """Return the name of the estimator that scores best on independent noise."""
    if len(estimators) == 1:
        return next(iter(estimators))
    scores = choose_candidate(pairs, estimators).scores
    return max((one for one in scores if one.personal_weight), key=scores.__getitem__).estimator


@one_blas_thread()
def choose_candidate(
    pairs: PairMatrix, estimators: Mapping[str, Estimator], ridges: Sequence[float] = RIDGES
) -> Decision:
    """Choose the personal weight, the ridge and the estimator that score best on independent noise.

    References
    ----------
    .. [1] Oliveira, Lei, Tibshirani, "Unbiased risk estimation in the normal means problem via coupled bootstrap
       techniques", Electronic Journal of Statistics, 2024.
    """
    popularity = Candidate(0.0, min(ridges), next(iter(estimators)))
    candidates = [popularity] + [
        Candidate(weight, ridge, name) for name in estimators for weight in _PERSONAL_WEIGHTS for ridge in ridges
    ]
    noise, scores, lengths = pairs.noise * math.sqrt(1 + _SPLIT), dict.fromkeys(candidates, 0.0), {}
    factors: dict[str, NDArray[np.float64]] = {}
    # The two training matrices have E and -E, so that the first order of E cancels in the mean of their scores.
    for training in _training_matrices(pairs):
        factors = {name: estimate(training.copy(), noise) for name, estimate in estimators.items()}
        test = _test_matrix(pairs, training)
        for candidate in candidates:
            scoring = pairs.score(factors[candidate.estimator], candidate, noise)
            agreement, lengths[candidate] = _agreement(pairs, test, scoring)
            scores[candidate] += agreement / lengths[candidate] / 2
        del test  # the next estimate is the peak of memory

    def weights(candidate: Candidate) -> tuple[np.ndarray, ...]:  # recomputed to save memory
        return pairs.score(factors[candidate.estimator], candidate, noise).weights(1 / lengths[candidate])

    best = max(candidates[1:], key=scores.__getitem__)
    reference = abs(scores[popularity]) or 1.0
    gain = (scores[best] - scores[popularity]) / reference
    error = pairs.noise * _spread(weights(best), weights(popularity)) / reference
    return Decision(best if gain > 0 else popularity, scores, gain, error)


def _training_matrices(pairs: PairMatrix) -> Iterator[NDArray[np.float32]]:
    """Yield P + sqrt(a) s E and P - sqrt(a) s E, in one array."""
    training, scale, n_items = pairs.values.copy(), pairs.noise * math.sqrt(_SPLIT), len(pairs.values)
    for start in range(0, n_items, _ROWS):
        stop, key = min(start + _ROWS, n_items), Key.from_seed(0)
        draws = key.normal(_NOISE, round=start // _ROWS, size=(stop - start) * (n_items - start)) * scale
        block = np.triu(draws.astype(np.float32).reshape(stop - start, -1), 1)
        training[start:stop, start:] += block
        training[start:, start:stop] += block.T
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
