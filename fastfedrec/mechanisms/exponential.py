"""Private selection of the items with the highest scores: exact by peeling, or fast by Gumbel noise."""

import bisect
import itertools
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.accounting.events import CentralRelease, Neighboring
from fastfedrec.core.check import (
    check_array,
    check_choice,
    check_epsilon,
    check_exact,
    check_flag,
    check_integer,
    plain_array,
)
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms._opendp import Space
from fastfedrec.mechanisms._randomizer import Randomizer
from fastfedrec.mechanisms.noise.exact_sampling import accept_exp, draw_below, exp_minus, words
from fastfedrec.mechanisms.noise.integer_noise import extra_delta
from fastfedrec.mechanisms.report_checks import check_integers, check_reals, draws_reports, python_numbers

__all__ = ["ExponentialMechanism"]

_WEIGHT_BITS = 64
# The fast path moves scores that are further below the best one, in units of beta, up to this depth.
_DEPTH = 1000
# The error of each noisy score is below (440 + 5 _DEPTH) 2^-53.  The k-th best score and the next one are within x of
# each other with probability at most k (e^x - 1), which the 441 covers; see docs/explanation/mechanisms/exponential.md.
_GAP = Fraction(2 * (441 + 5 * _DEPTH), 2**53)


class ExponentialMechanism(Randomizer[np.int64]):
    """Private choice of high scores: item i is chosen with probability proportional to exp(score / beta).

    **Guarantee.** The indices, in the order they were chosen, are `epsilon`-differentially private if adding or
    removing one user ("add_remove"), or replacing one ("replace"), changes each score by at most `sensitivity`
    (privacy unit "user"), against everyone who sees them; the server that knows the scores is trusted ("central").
    With ``sampler="gumbel"`` the claim has the delta that `delta` states.

    Parameters
    ----------
    epsilon : float
        Total epsilon of all chosen indices, in nats, greater than 0.
    sensitivity : Fraction, int or float
        Maximum change of any score by one user; a public number.
    n_selected : int
        Number of different items to choose, at epsilon / n_selected each.
    monotone : bool
        True if a neighbour changes all scores in the same direction, as counts do under "add_remove" (and do not
        under "replace").  The noise is half as large then.
    sampler : {"exact", "gumbel"}
        "exact" takes integer scores; "gumbel" takes any real scores, is vectorised, and has a delta.

    Attributes
    ----------
    epsilon : float
        As given: the exact cost of the ideal mechanism, which the exact sampler implements.
    beta : Fraction
        Scale of the noise: n_selected sensitivity / epsilon for monotone scores, twice that otherwise.
    sensitivity, n_selected, monotone, sampler
        As given.

    Notes
    -----
    The fast sampler adds Gumbel noise of scale beta to every score and takes the best n_selected.  The exact sampler
    chooses items one after the other, with probability proportional to exp(score / beta) among the remaining ones.
    Both procedures have the same distribution.  The exact sampler uses integer arithmetic, so that probabilities have
    no rounding errors.  The guarantee does not cover the scores of the chosen items, which need noise to be published.
    See docs/explanation/mechanisms/exponential.md.

    References
    ----------
    .. [1] McSherry, Talwar, "Mechanism design via differential privacy", FOCS 2007.
    .. [2] Durfee, Rogers, "Practical differentially private top-k selection with pay-what-you-get composition",
       NeurIPS 2019, Lemma 4.2.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import ExponentialMechanism
    >>> mechanism = ExponentialMechanism(2.0, n_selected=2, monotone=True)
    >>> mechanism.beta
    Fraction(1, 1)
    >>> sorted(mechanism.privatize([3, 500, 40, 900], key=Key.from_seed(1)).tolist())
    [1, 3]
    """

    _purpose = "selection.privatize"
    _report_types = (np.int64,)

    def __init__(
        self,
        epsilon: float,
        *,
        sensitivity: Fraction | int | float = 1,
        n_selected: int = 1,
        monotone: bool = False,
        sampler: str = "exact",
    ):
        self.epsilon = check_epsilon("epsilon", epsilon)
        self.sensitivity = check_exact("sensitivity", sensitivity, low=0, exclusive=True)
        self.n_selected = check_integer("n_selected", n_selected, low=1)
        self.monotone = check_flag("monotone", monotone)
        self.sampler = check_choice("sampler", sampler, ("exact", "gumbel"))
        self.beta = self.n_selected * self.sensitivity * (1 if self.monotone else 2) / Fraction(self.epsilon)
        if self.sampler == "gumbel":
            check_exact("beta (n_selected sensitivity / epsilon)", self.beta, low=1e-200, high=1e200)

    def delta(self, n_scores: int) -> float:
        """Return the delta that floating-point arithmetic adds to the claim: 0 for the exact sampler.

        Parameters
        ----------
        n_scores : int
            Number of scores to choose from.

        Returns
        -------
        float
            (1 + e^epsilon) times a bound on the probability that rounding changes the choice.  The bound assumes that
            NumPy's logarithms are within 4 units in the last place.
        """
        return extra_delta(self.epsilon, self._distance(n_scores))

    def event(self, n_scores: int, *, neighboring: Neighboring) -> CentralRelease:
        """Return the event of one call of `privatize`, for a ledger or an accountant.

        The event states that each choice has a bounded range, which costs less than its epsilon alone (see
        docs/explanation/accounting/pure-releases.md).

        Parameters
        ----------
        n_scores : int
            Number of scores to choose from; a public number.
        neighboring : {"replace", "add_remove", "zero_out"}
            Neighbouring relation for which the sensitivity holds.

        Returns
        -------
        CentralRelease
            The event, with the sampler's total-variation distance from the ideal mechanism.

        Examples
        --------
        >>> from fastfedrec.accounting import ZCDPAccountant
        >>> from fastfedrec.mechanisms import ExponentialMechanism
        >>> event = ExponentialMechanism(0.1).event(500, neighboring="replace")
        >>> round(ZCDPAccountant().compose(event, 100).get_epsilon(1e-6), 2)
        2.42
        """
        distance = min(float_up(self._distance(n_scores)), 1.0)
        return CentralRelease(
            "exponential mechanism", self.epsilon, neighboring=neighboring, n_choices=self.n_selected, distance=distance
        )

    def _distance(self, n_scores: int) -> Fraction:
        """Return an upper bound on the total-variation distance between the sampler and the ideal mechanism."""
        n_scores = check_integer("n_scores", n_scores, low=1)
        if self.sampler == "exact":
            return Fraction(0)
        # Rank k contributes k * _GAP.  The second term covers words with more leading zeros than doubles can represent.
        return self.n_selected * (self.n_selected + 1) // 2 * _GAP + Fraction(n_scores, 2**74)

    @draws_reports
    def privatize(  # type: ignore[override]  # the values are scores, and their reports a choice
        self, scores: ArrayLike, *, key: Key | None = None, round: int = 0
    ) -> NDArray[np.int64]:
        """Choose items.

        Parameters
        ----------
        scores : array_like of shape (n,)
            Integers for the exact sampler, real numbers for "gumbel".  There NaN counts as 0, an infinite score as the
            nearest finite number, and an integer beyond 2^53 as 2^53.  No score decides whether there is a release.

        Returns
        -------
        ndarray of shape (n_selected,), int64
            Different positions in `scores`, in the order in which they were chosen.

        Raises
        ------
        TypeError
            Scores that are not integers, for the exact sampler.
        ValueError
            Fewer scores than `n_selected`.
        """
        return self._release(scores, key, round)

    def _opendp_space(self, dp: Any) -> Space:
        if self.sampler != "exact":
            raise TypeError(f"OpenDP has no measure for floats with a delta, got sampler={self.sampler!r}; use 'exact'")
        per_change = Fraction(self.epsilon) / self.sensitivity
        domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=self.monotone)
        return Space(domain, metric, dp.max_divergence(), lambda distance: float_up(per_change * distance), False)

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        array = plain_array("scores", values)
        if self.sampler == "exact":
            array = check_integers(
                "scores",
                values,
                "put them (and sensitivity) on an integer grid, or use sampler='gumbel', which has a delta",
            )
            if array.ndim != 1:
                raise ValueError(f"scores must have 1 dimension, got shape {array.shape}")
        else:
            # NumPy turns Python's integers into floats or objects if one of them is beyond 64 bits.
            if array.dtype.kind in "fO" and python_numbers(values, int) is not None:
                array = check_integers("scores", values, "use whole numbers")
            elif array.dtype.kind == "O":
                array = check_reals("scores", values, "use whole numbers or floats")
            if array.dtype.kind in "iu":  # doubles hold the clipped scores; clipping moves no neighbours' scores apart
                bounds = np.iinfo(array.dtype)
                array = array.clip(max(-(2**53), bounds.min), min(2**53, bounds.max))
            array = np.nan_to_num(check_array("scores", array, ndim=1, dtypes=(np.float64,), finite=False))
        if len(array) < self.n_selected:
            raise ValueError(f"scores must have at least n_selected={self.n_selected} entries, got {len(array)}")
        return array

    def _report_shape(self, values: np.ndarray) -> tuple[int, ...]:
        return (self.n_selected,)

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        choose = self._peel if self.sampler == "exact" else self._largest_noisy
        out[:] = choose(values, key, round_number)

    def _peel(self, array: np.ndarray, key: Key, round_number: int) -> np.ndarray:
        """Apply one exponential mechanism after the other, each to the remaining items."""
        # An item is proposed with probability proportional to an integer just above 2^64 exp(-depth).  It is accepted
        # if a uniform number below that integer is below 2^64 exp(-depth), which is decided exactly.
        bits = words(key, self._purpose, round_number)
        chosen: dict[int, None] = {}  # a dict keeps the order of choice
        scores, by_score = array.tolist(), np.argsort(array, kind="stable").tolist()
        weights = _Weights([])
        while len(chosen) < self.n_selected:
            while by_score[-1] in chosen:
                by_score.pop()
            if not chosen or weights[by_score[-1]] < 2 ** (_WEIGHT_BITS // 2):
                # Depths are relative to the best remaining score.  The reference does not change the probabilities.
                best = scores[by_score[-1]]
                weights = _Weights(self._weights_of(scores, best), chosen)
            while True:
                i, above = weights.find(draw_below(weights.total, bits))
                if accept_exp(above, _WEIGHT_BITS, (best - scores[i]) / self.beta, bits):
                    break
            chosen[i] = None
            if len(chosen) < self.n_selected:
                weights.clear(i)
        return np.array(list(chosen), dtype=np.int64)

    def _weights_of(self, scores: list[int], best: int) -> list[int]:
        # All items with a score above `best` were chosen before.
        of_score = {s: exp_minus((best - s) / self.beta, _WEIGHT_BITS) + 2 if s <= best else 0 for s in set(scores)}
        return [of_score[s] for s in scores]

    def _largest_noisy(self, scores: np.ndarray, key: Key, round_number: int) -> np.ndarray:
        with np.errstate(over="ignore"):  # an overflow gives minus infinity, which becomes -_DEPTH
            depths = np.maximum((scores - scores.max()) / float(self.beta), -_DEPTH)
        noisy = depths + _gumbel(key.words(self._purpose, round=round_number, size=2 * len(scores)))
        return np.argsort(-noisy, kind="stable")[: self.n_selected]

    def __repr__(self) -> str:
        return (
            f"ExponentialMechanism({self.epsilon}, sensitivity={self.sensitivity}, n_selected={self.n_selected}, "
            f"monotone={self.monotone}, sampler={self.sampler!r})"
        )


class _Weights:
    """Integer weights with a Fenwick tree of their sums, which samples or clears an index in log2(n) steps."""

    # P. M. Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience 24(3),
    # 1994.  The tree is built when the first weight is cleared, since choosing a single item needs running sums alone.

    def __init__(self, weights: list[int], cleared: Iterable[int] = ()):
        for i in cleared:
            weights[i] = 0
        self._weights, self._sums = weights, [0, *itertools.accumulate(weights)]
        self.total = self._sums[-1]
        self._tree: list[int] = []  # entry j, from 1, is the sum of the last (j & -j) weights up to weight j

    def __getitem__(self, i: int) -> int:
        return self._weights[i]

    def find(self, number: int) -> tuple[int, int]:
        """Return the index where the running sum exceeds `number`, and the excess of `number` over the sum before."""
        if not self._tree:
            index = bisect.bisect_right(self._sums, number) - 1
            return index, number - self._sums[index]
        index, step = 0, 1 << len(self._weights).bit_length()
        # Binary descent: before each step, `index` weights are known to sum to at most the original number.
        while step := step >> 1:
            if index + step < len(self._tree) and self._tree[index + step] <= number:
                index += step
                number -= self._tree[index]
        return index, number

    def clear(self, i: int) -> None:
        """Set a weight to 0."""
        if not self._tree:
            self._tree = [sum_ - self._sums[j - (j & -j)] for j, sum_ in enumerate(self._sums)]
        weight, self._weights[i] = self._weights[i], 0
        self.total -= weight
        j = i + 1
        while j < len(self._tree):
            self._tree[j] -= weight
            j += j & -j


def _gumbel(words: np.ndarray) -> np.ndarray:
    """Return one Gumbel draw for each pair of words, with an error near 2^-44 at any size of the draw."""
    # E = -log(U) is exponential and -log(E) is Gumbel.  One bit decides whether U is below 1/2.  The other 127 bits
    # give the smaller one of U and 1 - U, so that E keeps its digits at both ends.
    first, second = words[0::2], words[1::2]
    near = (first & np.uint64(2**63 - 1)).astype(np.float64) + (second.astype(np.float64) + 0.5) * 2.0**-64
    near *= 2.0**-64
    exponential = np.where(first >> np.uint64(63), -np.log1p(-near), -np.log(near))
    return -np.log(exponential)
