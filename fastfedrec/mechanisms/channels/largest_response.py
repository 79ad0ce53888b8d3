"""Largest response: which of some random entries of a vector is the largest, and its sign."""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.check import check_epsilon, check_integer
from fastfedrec.core.randomness import Key, claim_call
from fastfedrec.mechanisms.channels.channel import TOTAL, NominalEpsilon, exp_lower
from fastfedrec.mechanisms.report_checks import check_reals, draws_reports, present

__all__ = ["LargestResponse"]

_MOST_CANDIDATES = 2**16


class LargestResponse(NominalEpsilon):
    """Draw some entries of a vector, its candidates, and report the largest and its sign; or, by chance, anything.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two vectors are neighbours
    ("replace"), the privacy unit is one report, and nothing beyond the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; the exact epsilon of what runs is at most this.
    n_candidates : int
        Entries that are drawn, with replacement, for a report, and of which only the chosen one is told; from 1, which
        is binary response about a random entry, to 65,536.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_candidates : int
        As given.
    clones : int
        Out of 2^64, even: how many words make a report that tells nothing, of a uniform entry and a fair coin.
    decoder : float
        What answers of +-1 are multiplied by, so that those that tell nothing are made up for.

    Notes
    -----
    Whatever the vector, a report other than a clone is at most 2 `n_candidates` times as likely as when entry and sign
    are uniform, and a report is at least as likely as a clone.  `clones` is the least number for which the ratio of
    these two is below a lower bound of e^eps.  docs/explanation/mechanisms/channels/largest-response.md has the proofs.
    `fastfedrec.ShuffledSketchGram` reports about vectors that are never written down, by a kernel of its own.

    References
    ----------
    .. [1] Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in
       private federated learning", 2018 (PrivUnit, a cap of a sphere where this has the largest of several).
    .. [2] Takagi, Liew, "Shuffling-aware optimization for private vector mean estimation", 2026 (what is optimal for
       local privacy is not once reports are shuffled).

    Examples
    --------
    >>> from fastfedrec.mechanisms import BinaryResponse, LargestResponse
    >>> response = LargestResponse(2.5, n_candidates=8)
    >>> 2.499999 < response.epsilon <= 2.5
    True
    >>> round(response.clones / 2**64, 3)
    0.589
    >>> abs(LargestResponse(2.5, 1).decoder - BinaryResponse(2.5).decoder) < 1e-12
    True
    >>> from fastfedrec import Key
    >>> reports = response.privatize(np.tile([0.1, -3.0, 0.2, 0.0], (100_000, 1)), key=Key.from_seed(1))
    >>> reports.shape
    (100000, 2)
    >>> told = reports[reports[:, 0] == 1, 1]
    >>> bool(told.mean() < -0.5)
    True
    """

    _purpose = "largest_response"

    def __init__(self, nominal_epsilon: float, n_candidates: int = 8):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        self.n_candidates = check_integer("n_candidates", n_candidates, low=1, high=_MOST_CANDIDATES)
        most = 2 * self.n_candidates
        share = most / (exp_lower(self.nominal_epsilon) - 1 + most)
        self.clones = 2 * -int(-TOTAL * share // 2)  # rounded up: toward privacy
        if self.clones >= TOTAL:
            raise ValueError(
                f"nominal_epsilon must be at least about {most * 1.1e-19:.1g} for {n_candidates} candidates, got "
                f"{nominal_epsilon}: no share of 64-bit words is nearer to 1"
            )
        self.decoder = float(Fraction(TOTAL, TOTAL - self.clones))

    @property
    def likelihood_ratio(self) -> Fraction:
        """A bound on the ratio of one report's probabilities for two vectors: e^epsilon, exactly.

        Returns
        -------
        Fraction
            More than 1; approached with many entries of different size.
        """
        return 1 + Fraction(2 * self.n_candidates * (TOTAL - self.clones), self.clones)

    @draws_reports
    def privatize(self, values: ArrayLike, *, key: Key | None = None, round: int = 0) -> NDArray[np.int64]:
        """Draw one report of each vector: one 64-bit word, and one for each candidate.

        Parameters
        ----------
        values : array_like of shape (n, n_entries), float
            Vectors, a row each; the number of entries is a power of 2, so that candidates are exactly uniform: append
            zeros.  An entry that is not finite counts as 0, because whether a client answers must not depend on its
            data.

        Returns
        -------
        ndarray of shape (n, 2), int64
            Of each row an entry, and 1 or -1.

        Raises
        ------
        ValueError
            Another number of dimensions or of entries.
        """
        vectors = check_reals("values", present(values), "pass vectors of real numbers")
        if vectors.ndim != 2 or vectors.shape[1] < 1 or vectors.shape[1] & (vectors.shape[1] - 1):
            raise ValueError(
                f"values must have 2 dimensions, the second a power of 2 (append zeros), got shape {vectors.shape}"
            )
        vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
        n, n_entries = vectors.shape
        key, round_number, _ = claim_call("LargestResponse.privatize", key, round, 1)
        words = key.words(self._purpose, round=round_number, size=n * (1 + self.n_candidates))
        words = words.reshape(n, 1 + self.n_candidates)
        first, candidates = words[:, 0], np.zeros((n, self.n_candidates), dtype=np.int64)
        if n_entries > 1:
            candidates[:] = words[:, 1:] >> np.uint64(65 - n_entries.bit_length())
        rows = np.arange(n)
        chosen = np.abs(vectors[rows[:, None], candidates]).argmax(axis=1)  # the first of those that are largest
        is_clone = first < np.uint64(self.clones)
        entries = candidates[rows, np.where(is_clone, 0, chosen)]
        told = np.where(is_clone, 0.0, vectors[rows, entries])
        coins = 1 - 2 * (first & np.uint64(1)).astype(np.int64)
        return np.stack([entries, np.where(told == 0, coins, np.sign(told).astype(np.int64))], axis=1)
