"""Results of attacks on FedRec, their scores, and the matching of messages with the data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_instance
from fastfedrec.core.old_names import OldAttribute
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.gradient_rounds.views import Messages, RecordedRound

REMEDY = "pass an entry of a model's records_, from fit(record_views=...)"


@dataclass(frozen=True)
class AttackResult:
    """The claims of an attack on each pair (user, item), and the truth.

    Parameters
    ----------
    attack : str
        Name of the attack and of the adversary.
    claims : ndarray of shape (n_pairs,), int8
        1 "rated", -1 "not rated", 0 no claim.
    is_rated : ndarray of shape (n_pairs,), bool
        The truth, which the attack does not use.
    scores : ndarray of shape (n_pairs,), float64
        Evidence that a pair is rated, larger for stronger evidence.
    rows : ndarray of shape (n_pairs,), int64
        Row of each pair's user in the data.
    """

    attack: str
    claims: NDArray[np.int8]
    is_rated: NDArray[np.bool_]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def base_rate(self) -> float:
        """Share of the pairs that are rated, which is the precision of a random claim.

        Returns
        -------
        float
            NaN without pairs.
        """
        return float(self.is_rated.mean()) if len(self.is_rated) else float("nan")

    @property
    def precision(self) -> float:
        """Share of the pairs claimed to be rated that are rated.

        Returns
        -------
        float
            NaN without any such claim.
        """
        claimed = self.is_rated[self.claims > 0]
        return float(claimed.mean()) if len(claimed) else float("nan")

    @property
    def recall(self) -> float:
        """Share of the rated pairs that are claimed to be rated.

        Returns
        -------
        float
            NaN without rated pairs.
        """
        claimed = self.claims[self.is_rated]
        return float((claimed > 0).mean()) if len(claimed) else float("nan")

    told = OldAttribute("accuracy")

    @property
    def accuracy(self) -> float:
        """Share of all pairs with a correct claim; a pair without a claim counts as an error.

        Returns
        -------
        float
            NaN without pairs.
        """
        is_correct = self.claims == np.where(self.is_rated, 1, -1)
        return float(is_correct.mean()) if len(is_correct) else float("nan")

    @property
    def auc(self) -> float:
        """Area under the ROC curve: the probability that a rated pair scores above an unrated one, .5 by chance.

        Returns
        -------
        float
            NaN if all pairs are rated, or none.
        """
        # The rank-sum statistic, with ties counted half.
        _, code = np.unique(self.scores, return_inverse=True)
        rated = np.bincount(code[self.is_rated], minlength=code.max(initial=0) + 1).astype(np.float64)
        other = np.bincount(code[~self.is_rated], minlength=len(rated)).astype(np.float64)
        n_below = np.cumsum(other) - other
        pairs = rated.sum() * other.sum()
        return float((rated * (n_below + other / 2)).sum() / pairs) if pairs else float("nan")

    @property
    def beats_chance(self) -> bool:
        """Whether more claims are correct than expected by chance, by five standard deviations.

        Returns
        -------
        bool
            True if this holds for the claims "rated" or for the claims "not rated".
        """
        for claim, truth, chance in ((1, self.is_rated, self.base_rate), (-1, ~self.is_rated, 1 - self.base_rate)):
            is_correct = truth[self.claims == claim]
            # The number of correct random claims is binomial.
            if is_correct.sum() - len(is_correct) * chance > 5 * np.sqrt(len(is_correct) * chance * (1 - chance)):
                return True
        return False

    def statement(self) -> str:
        """Describe the figures in sentences, for ``ledger.note``.

        Returns
        -------
        str
            Three sentences; the first one states whether the attack exceeds chance.
        """
        n_claimed = int((self.claims > 0).sum())
        precision = f" ({self.precision:.1%} correctly, {self.base_rate:.1%} by chance)" if n_claimed else ""
        area = self.auc
        auc = "" if np.isnan(area) else f" The AUC is {area:.3f}."
        return (
            f"The attack '{self.attack}' {'exceeds' if self.beats_chance else 'does not exceed'} chance in an "
            f"experiment. Of {len(self.claims):,} items in users' messages it claims that {n_claimed:,} are "
            f"rated{precision}. Its correct claims are {self.recall:.1%} of all rated items.{auc}"
        )


@dataclass(frozen=True)
class RatingResult(AttackResult):
    """The claims of an attack that also computes ratings and users' factors.

    Parameters
    ----------
    attack, claims, is_rated, scores, rows : object
        See `AttackResult`.
    ratings : ndarray of shape (n_pairs,), float64
        Claimed rating of each pair; NaN without a claim.
    true_ratings : ndarray of shape (n_pairs,), float64
        True rating; NaN for an unrated pair.
    user_factors : ndarray of shape (n_users, n_factors), float64
        Computed factors of each user in the first round; NaN without a result.
    """

    ratings: NDArray[np.float64]
    true_ratings: NDArray[np.float64]
    user_factors: NDArray[np.float64]

    @property
    def rating_recall(self) -> float:
        """Share of the rated pairs that are claimed with the correct rating.

        Returns
        -------
        float
            NaN without rated pairs.
        """
        is_correct = (self.claims > 0) & (self.ratings == self.true_ratings)
        return float(is_correct[self.is_rated].mean()) if self.is_rated.any() else float("nan")

    @property
    def commonest_rating(self) -> float:
        """Share of the rated pairs with the most frequent rating, which is the best constant guess.

        Returns
        -------
        float
            NaN without rated pairs.
        """
        _, counts = np.unique(self.true_ratings[self.is_rated], return_counts=True)
        return float(counts.max() / counts.sum()) if len(counts) else float("nan")

    @property
    def beats_chance(self) -> bool:
        """Whether the attack finds rated pairs, or more ratings than the best constant guess.

        Returns
        -------
        bool
            True if one of the two holds.
        """
        return super().beats_chance or self.rating_recall > self.commonest_rating

    def statement(self) -> str:
        """Describe the figures in sentences, for ``ledger.note``.

        Returns
        -------
        str
            The sentences of `AttackResult.statement`, and one on ratings.
        """
        return (
            f"{super().statement()} It finds the exact rating of {self.rating_recall:.1%} of all rated items; the most "
            f"frequent rating is correct for {self.commonest_rating:.1%}."
        )


def check_record(record: RecordedRound, truth: InteractionsLike) -> tuple[RecordedRound, Interactions]:
    """Return the record and its data, or raise if they do not match."""
    check_instance("record", record, RecordedRound, REMEDY)
    truth = as_interactions("truth", truth)
    if record.n_items != truth.n_items or not np.isin(record.server.senders, truth.global_user_ids).all():
        raise ValueError(f"truth must be the data that the model was fitted on, got {truth!r}")
    return record, truth


def rows_of(users: np.ndarray, truth: Interactions) -> np.ndarray:
    """Return the rows of global ids."""
    order = np.argsort(truth.global_user_ids)
    return order[np.searchsorted(truth.global_user_ids, users, sorter=order)]


def cells_of(messages: Messages, truth: Interactions) -> np.ndarray:
    """Return one number for each (user, item)."""
    return rows_of(messages.senders, truth) * truth.n_items + messages.items


def rated_cells(truth: Interactions) -> np.ndarray:
    """Return the numbers of the rated pairs, ascending."""
    return np.repeat(np.arange(truth.n_users), truth.interactions_per_user()) * truth.n_items + truth.indices


def result_of(
    attack: str, claims: np.ndarray, scores: np.ndarray, cells: np.ndarray, truth: Interactions
) -> AttackResult:
    """Return a result with the truth of its pairs."""
    is_rated = np.isin(cells, rated_cells(truth))
    return AttackResult(attack, claims, is_rated, scores.astype(np.float64), cells // truth.n_items)
