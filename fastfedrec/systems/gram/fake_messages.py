"""Messages about cells that hide a user's data in a crowd: its own cells, and a Poisson number of fake ones.

docs/explanation/systems/gram/shuffled-gram.md describes both.
"""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.gram import shuffled_gram as _kernel
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads

__all__ = [
    "MAX_THREADS",
    "FakeMessages",
    "PoissonTable",
    "choose_ranks",
    "poisson_table",
    "scale_words",
    "shares_of_rows",
]

_BITS = 256  # fraction bits of a weight
_LEAST = 2**112  # smallest weight of a table; smaller ones have a total far below 2^-128
_MAX_CELLS = 2**32 - 1  # largest number of cells: `scale_words` multiplies halves of 32 bits
#: Maximum number of threads that count messages, each with counts of its own.
MAX_THREADS = 4


class PoissonTable(NamedTuple):
    """Inverse table of a Poisson distribution: the number of thresholds up to 128 random bits, plus `low`, is the draw.

    With 64 bits, the distances of many users' draws could exceed delta.
    """

    low: int
    thresholds: NDArray[np.uint64]  # cumulative probabilities of all draws but the last, times 2^128: two words each
    total_variation: Fraction  # upper bound of the distance of one draw from the distribution

    @property
    def high(self) -> int:
        """Largest draw."""
        return self.low + len(self.thresholds)

    def draw(self, words: np.ndarray) -> NDArray[np.int64]:
        """Return one draw for each row of two uniform 64-bit words."""
        high, low = self.thresholds.T
        first, last = (np.searchsorted(high, words[:, 0], side=side) for side in ("left", "right"))
        draws = self.low + first.astype(np.int64)
        for row in np.flatnonzero(first < last):  # the second word is needed once in about 2^64 draws
            draws[row] += np.searchsorted(low[first[row] : last[row]], words[row, 1], side="right")
        return draws


@functools.lru_cache(maxsize=8)
def poisson_table(mean: Fraction) -> PoissonTable:
    """Return the table of a Poisson distribution by integer arithmetic.

    Parameters
    ----------
    mean : Fraction
        Mean, above 0.

    Returns
    -------
    PoissonTable
        Table with a bound on its error.
    """
    mode = math.floor(mean)
    above = [1 << _BITS]
    while above[-1] >= _LEAST:
        above.append(above[-1] * mean.numerator // (mean.denominator * (mode + len(above))))
    down = above[:1]
    while len(down) <= mode and down[-1] >= _LEAST:
        down.append(down[-1] * (mode + 1 - len(down)) * mean.denominator // mean.numerator)
    below = down[1:]
    weights, low = below[::-1] + above, mode - len(below)
    total, n = sum(weights), len(weights)
    sums = [0]
    for weight in weights[:-1]:
        sums.append(sums[-1] + weight)
    thresholds = [divmod((one << 128) // total, 2**64) for one in sums[1:]]
    # Ratios of neighbours fall away from the mode, so weights outside are at most a geometric series.  A weight is too
    # small by at most 1 for each step.
    ratio = mean / (mode + len(above))
    outside = (weights[-1] + n) * ratio / (1 - ratio)
    if low:
        outside += (weights[0] + n) * Fraction(low) / (mean - low)
    words = np.array(thresholds, dtype=np.uint64).reshape(-1, 2)
    return PoissonTable(low, words, (n * n + outside) / total + Fraction(n, 2**128))


class FakeMessages(NamedTuple):
    """The fake messages of one user: a Poisson number of them, each about a uniform cell."""

    total: Fraction  # mean number of messages of one user
    n_cells: int

    @classmethod
    def of(cls, rate: float, n_cells: int) -> "FakeMessages":
        """Return fake messages with at least this mean number about each cell, or raise for too many cells."""
        if n_cells > _MAX_CELLS:
            raise ValueError(
                f"the number of items, or of their pairs, must be at most {_MAX_CELLS:,}, got {n_cells:,}; choose "
                "fewer items"
            )
        # A cell has a probability of at least (1 - n_cells / 2^64) / n_cells by `scale_words`.
        return cls(Fraction(float_up(Fraction(rate) * n_cells / (1 - Fraction(n_cells, 2**64)))), n_cells)

    @property
    def rate(self) -> float:
        """Mean number of messages about each cell, rounded down."""
        return -float_up(-self.total / self.n_cells * (1 - Fraction(self.n_cells, 2**64)))

    @property
    def table(self) -> PoissonTable:
        """Table of the number of messages."""
        return poisson_table(self.total)

    def cells(
        self, key: Key, purpose: str, users: np.ndarray, numbers: np.ndarray, round_number: int, n_threads: int
    ) -> NDArray[np.int64]:
        """Return the cell of each message of users with these numbers of messages, in the order of the users."""
        words, _ = key.ragged_words(purpose, users, numbers, round=round_number, n_threads=n_threads)
        return scale_words(words, self.n_cells)

    def counts(
        self, key: Key, purpose: str, users: np.ndarray, numbers: np.ndarray, round_number: int, n_threads: int
    ) -> NDArray[np.int64]:
        """Return the number of messages about each cell, as of `cells`, without an array of all messages."""
        # A thread is not worth its counts of all cells if it adds fewer messages.
        n_useful = 1 + int(numbers.sum()) // self.n_cells
        counts = np.zeros((min(resolve_n_threads(n_threads), MAX_THREADS, n_useful), self.n_cells), dtype=np.int64)
        _kernel.count_uniform_cells(key.subkey(purpose), users, numbers, counts, round_number)
        return counts.sum(axis=0) if len(counts) > 1 else counts[0]


def scale_words(words: np.ndarray, n: np.ndarray | int) -> NDArray[np.int64]:
    """Return floor(word * n / 2^64) of 64-bit words, for n below 2^32.

    Parameters
    ----------
    words : ndarray of uint64
        Uniform words.
    n : int or ndarray of int64
        Numbers of values, of each word or of all.

    Returns
    -------
    ndarray of int64
        Nearly uniform numbers from 0 to n - 1: each has floor(2^64 / n) words or one more.
    """
    n = np.asarray(n).astype(np.uint64)
    half = np.uint64(32)
    # Steps in place need no memory for further arrays.
    low, scaled = words & np.uint64(2**32 - 1), words >> half
    low *= n
    low >>= half
    scaled *= n
    scaled += low
    scaled >>= half
    return scaled.view(np.int64)


def shares_of_rows(n_cells: np.ndarray, n_messages: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of messages in each cell, and the number of cells, of users with `n_cells` cells each.

    With c messages a user has at most ``n_messages // c**2`` cells.  The number c with the largest mean number of
    messages in each of the user's cells is best.

    Parameters
    ----------
    n_cells : ndarray of shape (n_users,), int64
        Number of cells in each user's data.
    n_messages : int
        Bound of the sum of squares of a user's numbers of messages.

    Returns
    -------
    times, sizes : ndarray of shape (n_users,), int64
        Messages in a cell, and number of cells.
    """
    levels = np.arange(1, math.isqrt(n_messages) + 1)
    limits = n_messages // levels**2
    means = levels * np.minimum(1.0, limits / np.maximum(n_cells, 1)[:, None])
    best = means.argmax(axis=1)
    return levels[best], np.minimum(limits[best], n_cells)


def choose_ranks(words: np.ndarray, n_cells: np.ndarray) -> NDArray[np.int64]:
    """Choose distinct numbers below `n_cells` for each user, as many as it has words, by Floyd's algorithm.

    Parameters
    ----------
    words : ndarray of shape (n_users, size), uint64
        Uniform words of each user.
    n_cells : ndarray of shape (n_users,), int64
        Numbers of cells, at least `size`.

    Returns
    -------
    ndarray of shape (n_users, size), int64
        Every set is equally likely, up to the rounding of `scale_words`.
    """
    chosen = np.empty(words.shape, dtype=np.int64)
    size = words.shape[1]
    for t in range(size):
        last = n_cells - size + t
        drawn = scale_words(words[:, t], last + 1)
        is_taken = (chosen[:, :t] == drawn[:, None]).any(axis=1)
        chosen[:, t] = np.where(is_taken, last, drawn)
    return chosen
