"""The messages of DMF users in a round, recorded for tests and attacks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SentRound:
    """All messages of one round; a receiver of a user's messages has all gradients of this user.

    Parameters
    ----------
    round : int
        Number of the round.
    senders : ndarray of shape (n,), int64
        Rows of the data, ascending.
    items : ndarray of shape (n,), int32
        Item of each gradient.
    gradients : ndarray of shape (n, n_factors), float32
        Gradients.
    n_negatives : int
        Public number of negatives for each item.
    """

    round: int
    senders: NDArray[np.int64]
    items: NDArray[np.int32]
    gradients: NDArray[np.float32]
    n_negatives: int
