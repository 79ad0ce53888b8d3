"""What users of DMF sent each other in a round, recorded for tests and attacks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SentRound:
    """Everything that users sent each other in one round; whoever hears a user has all of that user's.

    Parameters
    ----------
    round : int
        Which one.
    senders : ndarray of shape (n,), int64
        Rows of the data, ascending.
    items : ndarray of shape (n,), int32
        Of which item each gradient is.
    gradients : ndarray of shape (n, n_factors), float32
        As sent.
    n_negatives : int
        Everybody knows it.
    """

    round: int
    senders: NDArray[np.int64]
    items: NDArray[np.int32]
    gradients: NDArray[np.float32]
    n_negatives: int
