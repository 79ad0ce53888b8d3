"""What an attack on FedRec claims, how it is scored, and how messages are matched with the data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_instance
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.fedrec._views import Messages, RecordedRound

REMEDY = "pass an entry of a model's records_, from fit(record_views=...)"


@dataclass(frozen=True)
class AttackResult:
    """What an attack claims of each pair (user, item), and what is so.

    Parameters
    ----------
    attack : str
        Name, and who carries it out.
    claims : ndarray of shape (n_pairs,), int8
        1 "rated", -1 "not rated", 0 no claim.
    is_rated : ndarray of shape (n_pairs,), bool
        The truth, which the attack does not look at.
    scores : ndarray of shape (n_pairs,), float64
        How strongly the attack holds a pair to be rated.
    rows : ndarray of shape (n_pairs,), int64
        Whose pair it is: rows of the data.
    """

    attack: str
    claims: NDArray[np.int8]
    is_rated: NDArray[np.bool_]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def base_rate(self) -> float:
        """Share of the pairs that are rated: the precision of claiming it of all.

        Returns
        -------
        float
            NaN without pairs.
        """
        return float(self.is_rated.mean()) if len(self.is_rated) else float("nan")

    @property
    def precision(self) -> float:
        """Share of the pairs claimed to be rated that are.

        Returns
        -------
        float
            NaN without any such claim.
        """
        claimed = self.is_rated[self.claims > 0]
        return float(claimed.mean()) if len(claimed) else float("nan")

    @property
    def recall(self) -> float:
        """Share of the rated pairs that are claimed to be.

        Returns
        -------
        float
            NaN where nothing is rated.
        """
        claimed = self.claims[self.is_rated]
        return float((claimed > 0).mean()) if len(claimed) else float("nan")

    @property
    def told(self) -> float:
        """Share of all pairs of which something is claimed, and truly.

        Returns
        -------
        float
            NaN without pairs.
        """
        right = self.claims == np.where(self.is_rated, 1, -1)
        return float(right.mean()) if len(right) else float("nan")

    @property
    def auc(self) -> float:
        """Chance that a rated pair has a higher score than one that is not, ties counting half; .5 is no attack.

        Returns
        -------
        float
            NaN where all pairs are alike.
        """
        _, code = np.unique(self.scores, return_inverse=True)
        rated = np.bincount(code[self.is_rated], minlength=code.max(initial=0) + 1).astype(np.float64)
        other = np.bincount(code[~self.is_rated], minlength=len(rated)).astype(np.float64)
        below = np.cumsum(other) - other
        pairs = rated.sum() * other.sum()
        return float((rated * (below + other / 2)).sum() / pairs) if pairs else float("nan")

    @property
    def beats_chance(self) -> bool:
        """Whether more claims are true than were to be expected, by five standard deviations, had they been drawn.

        Returns
        -------
        bool
            Of claims "rated" and of claims "not rated", either.
        """
        for claim, truth, chance in ((1, self.is_rated, self.base_rate), (-1, ~self.is_rated, 1 - self.base_rate)):
            right = truth[self.claims == claim]
            if right.sum() - len(right) * chance > 5 * np.sqrt(len(right) * chance * (1 - chance)):
                return True
        return False

    def statement(self) -> str:
        """Put the figures into a sentence, for ``ledger.note``.

        Returns
        -------
        str
            Begins with "not protected", or where the attack does not beat chance with "withstood".
        """
        n_claimed = int((self.claims > 0).sum())
        truly = f", {self.precision:.1%} of them truly (by chance {self.base_rate:.1%})" if n_claimed else ""
        area = self.auc
        auc = "" if np.isnan(area) else f"; AUC {area:.3f}"
        return (
            f"{'not protected' if self.beats_chance else 'withstood'}, by experiment: {self.attack}: of "
            f"{len(self.claims):,} items that users spoke of, {n_claimed:,} are claimed to be rated{truly}; they are "
            f"{self.recall:.1%} of all rated ones{auc}"
        )


@dataclass(frozen=True)
class RatingResult(AttackResult):
    """An attack that tells ratings too, and users' factors.

    Parameters
    ----------
    attack, claims, is_rated, scores, rows : object
        As for `AttackResult`.
    ratings : ndarray of shape (n_pairs,), float64
        What is told of each pair; NaN where nothing is claimed.
    true_ratings : ndarray of shape (n_pairs,), float64
        The truth; NaN where a pair is not rated.
    user_factors : ndarray of shape (n_users, n_factors), float64
        What is told of each user, in the first of the rounds; NaN where nothing is.
    """

    ratings: NDArray[np.float64]
    true_ratings: NDArray[np.float64]
    user_factors: NDArray[np.float64]

    @property
    def rating_recall(self) -> float:
        """Share of the rated pairs that are claimed to be, with the right rating.

        Returns
        -------
        float
            NaN where nothing is rated.
        """
        right = (self.claims > 0) & (self.ratings == self.true_ratings)
        return float(right[self.is_rated].mean()) if self.is_rated.any() else float("nan")

    @property
    def commonest_rating(self) -> float:
        """Share of the rated pairs that have the commonest rating: the best guess of one who knows only that.

        Returns
        -------
        float
            NaN where nothing is rated.
        """
        _, counts = np.unique(self.true_ratings[self.is_rated], return_counts=True)
        return float(counts.max() / counts.sum()) if len(counts) else float("nan")

    @property
    def beats_chance(self) -> bool:
        """Whether it tells what is rated, or more ratings than the commonest one would.

        Returns
        -------
        bool
            Either.
        """
        return super().beats_chance or self.rating_recall > self.commonest_rating

    def statement(self) -> str:
        """Put the figures into a sentence, for ``ledger.note``.

        Returns
        -------
        str
            Begins with "not protected", or where the attack does not beat chance with "withstood".
        """
        return (
            f"{super().statement()}; the rating of {self.rating_recall:.1%} of all rated ones is told exactly (by "
            f"always guessing the commonest {self.commonest_rating:.1%})"
        )


def check_record(record: RecordedRound, truth: InteractionsLike) -> tuple[RecordedRound, Interactions]:
    """Return a record of these data, and the data, or raise."""
    check_instance("record", record, RecordedRound, REMEDY)
    truth = as_interactions("truth", truth)
    if record.n_items != truth.n_items or not np.isin(record.server.senders, truth.global_user_ids).all():
        raise ValueError(f"truth must be the data that the model was fitted on, got {truth!r}")
    return record, truth


def rows_of(users: np.ndarray, truth: Interactions) -> np.ndarray:
    """Rows of global ids."""
    order = np.argsort(truth.global_user_ids)
    return order[np.searchsorted(truth.global_user_ids, users, sorter=order)]


def cells_of(messages: Messages, truth: Interactions) -> np.ndarray:
    """One number for each (user, item)."""
    return rows_of(messages.senders, truth) * truth.n_items + messages.items


def rated_cells(truth: Interactions) -> np.ndarray:
    """The numbers of the pairs that are rated, ascending."""
    return np.repeat(np.arange(truth.n_users), truth.interactions_per_user()) * truth.n_items + truth.indices


def result_of(
    attack: str, claims: np.ndarray, scores: np.ndarray, cells: np.ndarray, truth: Interactions
) -> AttackResult:
    """Beside the truth."""
    is_rated = np.isin(cells, rated_cells(truth))
    return AttackResult(attack, claims, is_rated, scores.astype(np.float64), cells // truth.n_items)
