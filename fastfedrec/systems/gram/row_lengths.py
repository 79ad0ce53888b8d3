"""A round about the lengths of users' rows, and the choice between reports and counts of pairs that it decides."""

import math

import numpy as np
from numpy.typing import NDArray

from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.gram.cell_rounds import CellRound
from fastfedrec.systems.gram.fake_messages import shares_of_rows

__all__ = ["LengthRound", "rows_suit_counts"]


class LengthRound(CellRound):
    """One round in which each user with two items or more sends one message: the class of the number of its items.

    Class k has the rows of 2^(k + 1) to 2^(k + 2) - 1 items.
    """

    _stream = "shuffled_gram.lengths"
    _subject = "lengths"

    def __init__(self, n_items: int, fake_rate: float, honest_fraction: float = 1.0):
        super().__init__(n_items.bit_length() - 1, 1, fake_rate, False, honest_fraction)

    def _own_cells(self, shard: Interactions, users: np.ndarray, key: object, round_number: int) -> NDArray[np.int64]:
        lengths = shard.interactions_per_user()
        return np.frexp(lengths[lengths >= 2])[1].astype(np.int64) - 2


def rows_suit_counts(numbers: np.ndarray, n_messages: int, fakes_per_pair: float, noise_of_reports: float) -> bool:
    """Return whether counts have more signal in the noise of a pair than reports, by the numbers of rows of each class.

    Parameters
    ----------
    numbers : ndarray of shape (n_classes,), float64
        Estimated number of rows of each class of `LengthRound`.
    n_messages : int
        Sum of squares of a user's numbers of messages about pairs, at most.
    fakes_per_pair : float
        Mean number of fake messages about each pair.
    noise_of_reports : float
        Standard deviation of the noise of an entry, by reports, over that of one user's normalised row.

    Returns
    -------
    bool
        True for counts.
    """
    # The signal of a user is the norm of its part of the matrix without the diagonal.  A normalised row of m items has
    # 1 / m in each of its m (m - 1) entries, and counts have the mean number of messages about each of its pairs.
    lengths = math.sqrt(2) * 2.0 ** np.arange(1, len(numbers) + 1)
    entries = lengths * (lengths - 1)
    times, sizes = shares_of_rows(np.ceil(entries / 2).astype(np.int64), n_messages)
    of_counts = np.sqrt(entries) * times * np.minimum(1.0, 2 * sizes / entries) / math.sqrt(fakes_per_pair)
    of_reports = np.sqrt(entries) / lengths / noise_of_reports
    return bool(numbers @ (of_counts - of_reports) > 0)
