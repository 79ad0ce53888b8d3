"""A released matrix of item pairs, the candidates for its use, and the decision among them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.systems._linear_scores import LinearScores, linear_scores, popularity_shares

__all__ = ["Candidate", "Decision", "PairMatrix", "item_sums"]


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
        budget, DPGram demands a gain above an error, and shuffled systems a loss of less than an error.
    scores : mapping of Candidate to float
        Score of each candidate.
    gain : float
        Score of the best personal candidate less the score of popularity.  DPGram: difference of nDCG@10 among 100.
        ShuffledGram and ShuffledSketchGram: as a share of the score of popularity.
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
    # Scores of items that all users get with a weight of 0, by other messages; None for the sums of the matrix.
    common_scores: NDArray[np.float64] | None = None

    @classmethod
    def about(cls, mean: np.ndarray, weight: float) -> Self:
        """Return an empty matrix with the popularity of a positive mean of the rows, and this trace."""
        return cls(np.empty((0, 0), np.float32), 0.0, weight * popularity_shares(mean), math.sqrt(weight) * mean)

    def join(self, factors: np.ndarray, personal_weight: float) -> NDArray[np.float64]:
        """Return factors of the whole matrix: popularity, and the personal factors times the root of a weight."""
        scale = math.sqrt(personal_weight)
        if self.popularity is not None:
            shared = self.popularity[:, None]
            return np.column_stack([scale * factors, shared]) if personal_weight else shared
        if personal_weight:  # the strongest factor is the shared part
            return np.column_stack([scale * factors[:, 1:], factors[:, :1]])
        sums = np.maximum(item_sums(factors) if self.common_scores is None else self.common_scores, 0.0)
        return sums[:, None] / math.sqrt(max(float(sums.sum()), math.ulp(0.0)))

    def score(self, factors: np.ndarray, candidate: Candidate, noise: float) -> LinearScores:
        """Return the scoring of a candidate for factors with noise of this standard deviation."""
        ridge = candidate.ridge * noise * math.sqrt(len(self.item_squares))
        return linear_scores(self.join(factors, candidate.personal_weight), self.item_squares, ridge)


def item_sums(factors: np.ndarray) -> NDArray[np.float64]:
    """Return the sums of the rows of L L'."""
    return factors @ factors.sum(axis=0)
