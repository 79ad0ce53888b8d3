"""Largest response: the position and sign of the largest one of a few random entries of a vector."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.check import check_epsilon, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, NominalEpsilon, exp_lower
from fastfedrec.mechanisms.report_checks import check_reals

__all__ = ["LargestResponse"]

_MAX_CANDIDATES = 2**16
_BLOCK = 2**16  # approximate number of words of a block of vectors


class LargestResponse(NominalEpsilon[np.int64]):
    """Report the largest one of a few random entries (candidates) of a vector, or a uniform report by chance.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two vectors are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.
    n_candidates : int
        Number of entries drawn with replacement for a report, from 1 to 65,536.  A report contains the chosen entry
        alone.  With 1 candidate it is binary response about a random entry.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    n_candidates : int
        As given.
    clones : int
        Words out of 2^64, an even number, that make a clone.  A clone is a report of a uniform entry and a fair coin,
        and does not depend on the vector.
    decoder : float
        Factor of answers of +-1 that compensates for the clones.

    Notes
    -----
    `privatize` takes one vector in each row, of shape (n, n_entries).  The number of entries is a power of 2, so that
    candidates are exactly uniform: append zeros.  An entry that is not finite counts as 0.  Reports have shape (n, 2)
    and type int64: the position of an entry, and 1 or -1.

    For every vector, a report that is no clone is at most 2 `n_candidates` times as likely as with uniform entry and
    sign.  Each report is at least as likely as a clone with the same content.  `clones` is the smallest number that
    keeps the ratio of these two bounds below a lower bound of e^eps.  The proofs are in
    docs/explanation/mechanisms/channels/largest-response.md.
    `fastfedrec.ShuffledSketchGram` has a separate kernel for vectors that are never stored.

    References
    ----------
    .. [1] Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in
       private federated learning", 2018 (PrivUnit uses a cap of a sphere instead of the largest of several entries).
    .. [2] Takagi, Liew, "Shuffling-aware optimization for private vector mean estimation", 2026 (an optimal mechanism
       for local privacy is not optimal for shuffled reports).

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
    >>> signs = reports[reports[:, 0] == 1, 1]
    >>> bool(signs.mean() < -0.5)
    True
    """

    _purpose = "largest_response"
    _report_types = (np.int64,)

    def __init__(self, nominal_epsilon: float, n_candidates: int = 8):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        self.n_candidates = check_integer("n_candidates", n_candidates, low=1, high=_MAX_CANDIDATES)
        bound = 2 * self.n_candidates
        # The share c of clones with 1 + bound (1 - c) / c = e^epsilon.
        share = bound / (exp_lower(self.nominal_epsilon) - 1 + bound)
        self.clones = 2 * -int(-TOTAL * share // 2)  # rounded up: toward privacy
        if self.clones >= TOTAL:
            raise ValueError(
                f"nominal_epsilon must be at least about {bound * 1.1e-19:.1g} for {n_candidates} candidates, got "
                f"{nominal_epsilon}, which 64-bit words cannot represent; use a larger one"
            )
        self.decoder = float(Fraction(TOTAL, TOTAL - self.clones))

    @property
    def likelihood_ratio(self) -> Fraction:
        """Upper bound on the ratio of one report's probabilities for two vectors: e^epsilon, exactly.

        Returns
        -------
        Fraction
            Greater than 1; vectors with many entries of different size approach it.
        """
        return 1 + Fraction(2 * self.n_candidates * (TOTAL - self.clones), self.clones)

    def _opendp_domain(self, dp: Any) -> Any:
        return dp.vector_domain(dp.atom_domain(T="f64"))

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        vectors = check_reals("values", values, "pass vectors of real numbers")
        if vectors.ndim != 2 or vectors.shape[1] < 1 or vectors.shape[1] & (vectors.shape[1] - 1):
            raise ValueError(
                f"values must have 2 dimensions, the second a power of 2 (append zeros), got shape {vectors.shape}"
            )
        return vectors

    def _report_shape(self, values: np.ndarray) -> tuple[int, ...]:
        return len(values), 2

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        n, n_words = len(values), 1 + self.n_candidates
        words = key.words(self._purpose, round=round_number, size=n * n_words, n_threads=n_threads).reshape(n, n_words)
        # Arrays of a block stay in a cache.
        size = max(1, _BLOCK // n_words)
        for start in range(0, n, size):
            part = slice(start, start + size)
            self._write_reports(values[part], words[part], out[part])

    def _write_reports(self, values: np.ndarray, words: np.ndarray, out: np.ndarray) -> None:
        """Write the reports of some vectors, from the words of each."""
        n, n_entries = values.shape
        # A report's first word decides if it is a clone, and the other words draw its candidates.
        first, candidates = words[:, 0], np.zeros((n, self.n_candidates), dtype=np.int64)
        if n_entries > 1:  # the word's highest bits are uniform positions
            np.right_shift(words[:, 1:], np.uint64(65 - n_entries.bit_length()), out=candidates, casting="unsafe")
        rows = np.arange(n)
        # Vectors are read one after the other, and the results are sorted by candidates.
        drawn = np.ascontiguousarray(values.reshape(-1).take(candidates + n_entries * rows[:, None]).T)
        # Masks and integers replace branches and searches, which take a time that depends on the entries.
        integer = f"i{values.itemsize}"
        is_finite = -np.isfinite(drawn).astype(integer)  # all ones, or 0 for an entry that counts as 0
        drawn = (drawn.view(integer) & is_finite).view(drawn.dtype)
        sizes = np.abs(drawn)
        # The first one of equal entries has the largest number.
        numbers = np.arange(self.n_candidates, 0, -1, dtype=np.int32)[:, None]
        chosen = self.n_candidates - ((sizes == sizes.max(axis=0)) * numbers).max(axis=0)
        is_clone = first < np.uint64(self.clones)
        chosen *= ~is_clone
        entries, chosen_values = candidates[rows, chosen], drawn[chosen, rows]
        signs = ((chosen_values > 0).astype(np.int64) - (chosen_values < 0)) * ~is_clone
        # `clones` is even, so that the lowest bit of a clone's word is a fair coin.
        coins = 1 - 2 * (first & np.uint64(1)).astype(np.int64)
        out[:, 0] = entries
        out[:, 1] = signs + (signs == 0) * coins
