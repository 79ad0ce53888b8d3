"""Laplace noise and randomized response on ratings: the published mechanism (Jeyamohan 2019) and correct variants."""

import decimal
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_epsilon, check_real
from fastfedrec.core.numbers import renamed
from fastfedrec.core.old_names import refuse_old_keywords
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms._randomizer import Randomizer
from fastfedrec.mechanisms.channels.channel import LARGEST_EPSILON, TOTAL, Channel, exp_lower
from fastfedrec.mechanisms.channels.exact_counts import sum_lower, unbiased_table
from fastfedrec.mechanisms.frequencies.frequency import GRR
from fastfedrec.mechanisms.report_checks import check_grid, check_reals

__all__ = ["MixtureLaplaceRR", "PublishedLaplaceRR", "RoundedLaplace", "SerialLaplaceRR"]

_CONTEXT = decimal.Context(prec=60, Emin=-999999, Emax=999999)
_LARGEST_GRID = 32
_MAX_STEPS = 1024  # steps of the reports' range beyond each end of the grid


class RoundedLaplace(Channel):
    """Add Laplace noise to a value, clip it to a range, and round it to a grid, with exact probabilities.

    **Guarantee.** One report is `epsilon`-differentially private in the local model: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.  The noise has the scale
        (largest value - smallest value) / `nominal_epsilon`.
    grid : int or sequence of numbers
        At most 32 increasing values; an integer n means 0, 1, ..., n - 1.
    margin : float
        Extension of the reports' range at both ends of the grid, in scales of the noise.  It is rounded up to steps of
        the grid's mean spacing (at most 1,024).  With 0 a report is a value of the grid.

    Attributes
    ----------
    nominal_epsilon : float
        As given.

    Notes
    -----
    Clipping and rounding are post-processing of the noisy value.  The probabilities of the cells are computed to 60
    digits and rounded to 64-bit counts that keep the bound.  The outputs are the exact solution that makes every report
    unbiased.  See docs/explanation/mechanisms/ratings/laplace-rr.md.

    References
    ----------
    .. [1] Jeyamohan, Chen, Aslam, "Local differentially private matrix factorization for recommendations", 2019:
       "Laplace-SVD" (with continuous noise, without clipping and rounding).

    Examples
    --------
    >>> from fastfedrec.mechanisms import RoundedLaplace
    >>> channel = RoundedLaplace(1.0, [1, 2, 3, 4, 5])
    >>> round(channel.epsilon, 3), channel.mean(4)
    (0.986, Fraction(5, 1))
    >>> len(RoundedLaplace(1.0, [1, 2, 3, 4, 5], margin=12).outputs)
    101
    """

    _purpose = "rounded_laplace.privatize"
    _example = {"grid": 5}, (0, 4)

    @refuse_old_keywords(reach="margin")
    def __init__(self, nominal_epsilon: float, grid: int | Sequence[float], margin: float = 0.0):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        margin = check_real("margin", margin, low=0.0)
        inputs = check_grid("grid", grid, high=_LARGEST_GRID)
        step = (inputs[-1] - inputs[0]) / (len(inputs) - 1)
        epsilon = min(self.nominal_epsilon, LARGEST_EPSILON)
        n_steps = math.ceil(min(margin * (len(inputs) - 1) / epsilon, _MAX_STEPS))
        offsets = [j * step for j in range(1, n_steps + 1)]
        cells = [*(inputs[0] - s for s in reversed(offsets)), *inputs, *(inputs[-1] + s for s in offsets)]
        rate = Fraction(epsilon) / (inputs[-1] - inputs[0])  # 1 / scale
        targets = [_cell_probabilities(x, cells, rate) for x in inputs]
        super().__init__(**unbiased_table(targets, exp_lower(self.nominal_epsilon), inputs, cells))


def _cell_probabilities(x: Fraction, cells: Sequence[Fraction], rate: Fraction) -> list[Fraction]:
    """Return each cell's probability of x plus clipped Laplace noise, with a relative error of about 10^-57."""

    def tail(distance):  # P(noise >= distance), for a distance of at least 0
        exponent = -distance * rate
        power = _CONTEXT.divide(decimal.Decimal(exponent.numerator), decimal.Decimal(exponent.denominator))
        return Fraction(_CONTEXT.exp(power)) / 2

    edges = [(a + b) / 2 - x for a, b in itertools.pairwise(cells)]
    tails = [tail(abs(edge)) for edge in edges]
    # The first and the last cell take the whole tails beyond them.
    probabilities = [tails[0] if edges[0] <= 0 else 1 - tails[0]]
    for low, high, at_low, at_high in zip(edges[:-1], edges[1:], tails[:-1], tails[1:], strict=True):
        # On one side of x, the difference of two tails keeps all digits of a far cell.
        probabilities.append(abs(at_high - at_low) if (low >= 0) == (high > 0) else 1 - at_low - at_high)
    return [*probabilities, tails[-1] if edges[-1] >= 0 else 1 - tails[-1]]


class SerialLaplaceRR(Channel):
    """Rounded Laplace noise, followed by generalized randomized response on the noisy value.

    **Guarantee.** One report is epsilon-differentially private in the local model, where `epsilon` is computed from
    the exact table of the sampler and is at most the lesser of the two parameters: any two values of the grid are
    neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    epsilon_1 : float
        Epsilon of the Laplace noise, in nats.
    epsilon_2 : float
        Epsilon of the randomized response, in nats.
    grid : int or sequence of numbers
        At most 32 increasing values; an integer n means 0, 1, ..., n - 1.

    Notes
    -----
    The second step is post-processing of the first one's report, so it can only lower epsilon.  The two budgets do not
    add up, and most of both is wasted.  See docs/explanation/mechanisms/ratings/laplace-rr.md.

    Examples
    --------
    >>> from fastfedrec.mechanisms import SerialLaplaceRR
    >>> round(SerialLaplaceRR(1.0, 1.0, [1, 2, 3, 4, 5]).epsilon, 3)
    0.367
    """

    _purpose = "serial_laplace_rr.privatize"

    def __init__(self, epsilon_1: float, epsilon_2: float, grid: int | Sequence[float]):
        with renamed("nominal_epsilon", "epsilon_1"):
            noise = RoundedLaplace(check_epsilon("epsilon_1", epsilon_1), grid)
        with renamed("nominal_epsilon", "epsilon_2"):
            response = GRR(check_epsilon("epsilon_2", epsilon_2), len(noise.inputs))
        # The response keeps a report with probability (p - q) / 2^64, and else draws one of all values uniformly.
        p, q = response.p_count, response.q_count
        exact = [[Fraction(q * TOTAL + (p - q) * c, TOTAL**2) for c in row] for row in noise.counts]
        super().__init__(**unbiased_table(exact, _largest_ratio(exact), noise.inputs))


class MixtureLaplaceRR(Channel):
    """Mixture of the true rating and the rating with Laplace noise, clipped and rounded to the grid.

    **Guarantee.** One report is ``epsilon_1 + epsilon_2``-differentially private in the local model: any two values of
    the grid are neighbours ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    epsilon_1 : float
        Epsilon of the Laplace noise, in nats.
    epsilon_2 : float
        Additional epsilon of the true ratings, in nats.
    grid : int or sequence of numbers
        At most 32 increasing values; an integer n means 0, 1, ..., n - 1.

    Attributes
    ----------
    truth_probability : Fraction
        Probability of reporting the true rating: the largest one that keeps the guarantee.

    Notes
    -----
    This is the paper's idea with a probability that its claim allows.  The published probability, e^epsilon_2 /
    (1 + e^epsilon_2), is about three times as large and violates the claim.  A noisy report may be the true rating as
    well, so epsilon is computed from the combined table of both.  See
    docs/explanation/mechanisms/ratings/laplace-rr.md.

    References
    ----------
    .. [1] Jeyamohan, Chen, Aslam, "Local differentially private matrix factorization for recommendations", 2019.

    Examples
    --------
    >>> from fastfedrec.mechanisms import MixtureLaplaceRR
    >>> channel = MixtureLaplaceRR(1.0, 1.0, [1, 2, 3, 4, 5])
    >>> round(float(channel.truth_probability), 3), round(channel.epsilon, 6)
    (0.242, 2.0)
    """

    _purpose = "mixture_laplace_rr.privatize"

    def __init__(self, epsilon_1: float, epsilon_2: float, grid: int | Sequence[float]):
        with renamed("nominal_epsilon", "epsilon_1"):
            noise = RoundedLaplace(check_epsilon("epsilon_1", epsilon_1), grid)
        # A sum that is rounded down keeps the ratio within e^(epsilon_1 + epsilon_2).
        total = sum_lower(noise.nominal_epsilon, check_epsilon("epsilon_2", epsilon_2))
        ratio = exp_lower(total)
        # With odds b of the truth, column y is largest on input y: (b + P(y | y)) / min P(y | x) <= ratio.
        odds = min(
            ratio * Fraction(min(c for x, c in enumerate(column) if x != y), TOTAL) - Fraction(column[y], TOTAL)
            for y, column in enumerate(zip(*noise.counts, strict=True))
        )
        self.truth_probability = odds / (1 + odds)
        super().__init__(**unbiased_table(_mix(noise, self.truth_probability), ratio, noise.inputs))


def _largest_ratio(table: Sequence[Sequence[Fraction]]) -> Fraction:
    return max(max(column) / min(column) for column in zip(*table, strict=True))


def _mix(noise: RoundedLaplace, truth: Fraction) -> list[list[Fraction]]:
    return [
        [(1 - truth) * Fraction(c, TOTAL) + truth * (x == y) for y, c in enumerate(row)]
        for x, row in enumerate(noise.counts)
    ]


class PublishedLaplaceRR(Randomizer[np.float64]):
    """The published mechanism: the exact rating with probability p, and otherwise the rating with Laplace noise.

    **Guarantee.** None: `epsilon` is infinite.  "The report is exactly r" has probability p where the rating is r, and
    0 where it is any other.

    Parameters
    ----------
    epsilon_1 : float
        Epsilon of the Laplace noise, in nats: its scale is (high - low) / epsilon_1.
    epsilon_2 : float
        Epsilon of the response, in nats: p = e^epsilon_2 / (1 + e^epsilon_2), which is at least 1/2.
    low, high : float
        Smallest and largest rating.

    Attributes
    ----------
    epsilon_1, epsilon_2, low, high : float
        As given.

    Notes
    -----
    The class serves reproductions, and the audit that refutes the claim of epsilon_1 + epsilon_2.  The noise is
    computed in floating point, as a straightforward implementation does.  `privatize` clips ratings to `low` and
    `high`, and NaN counts as `low`.  Reports are float64, and many of them are the exact ratings.

    References
    ----------
    .. [1] Jeyamohan, Chen, Aslam, "Local differentially private matrix factorization for recommendations", 2019,
       equations 4 and 5.

    Examples
    --------
    >>> from fastfedrec.audit import audit
    >>> from fastfedrec.mechanisms import PublishedLaplaceRR
    >>> published = PublishedLaplaceRR(1.0, 1.0, low=1, high=5)
    >>> round(published.delta(2.0), 3)
    0.731
    >>> print(audit(published.on_grid([1, 2, 3, 4, 5]), 1, 4, claim=2.0))
    VIOLATED: epsilon is 3.8692 (exact), the claim is 2
    event: output 1 (decoded to 1.8042): 76.27% on the first input, 1.59% on the second
    worst pair of inputs: epsilon 3.8692
    """

    #: Epsilon of one report, which is infinite.
    epsilon = math.inf

    _purpose = "published_laplace_rr.privatize"
    _report_types = (np.float64,)

    def __init__(self, epsilon_1: float, epsilon_2: float, *, low: float = 0.0, high: float = 1.0):
        self.epsilon_1 = check_epsilon("epsilon_1", epsilon_1)
        self.epsilon_2 = check_epsilon("epsilon_2", epsilon_2)
        self.low = check_real("low", low)
        self.high = check_real("high", high, low=self.low, exclusive=True)
        self._scale = check_real("(high - low) / epsilon_1", (self.high - self.low) / self.epsilon_1)

    @property
    def truth_probability(self) -> float:
        """Probability p of reporting the exact rating.

        Returns
        -------
        float
            Probability, at least 1/2.
        """
        return 1 / (1 + math.exp(-self.epsilon_2))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta for which the mechanism is (epsilon, delta)-differentially private.

        Parameters
        ----------
        epsilon : float
            At least 0, in nats.

        Returns
        -------
        float
            `truth_probability` for an epsilon of at least `epsilon_1`, and more for a smaller one.
        """
        epsilon = check_real("epsilon", epsilon, low=0.0)
        p = self.truth_probability
        # The noisy reports add the delta of the Laplace mechanism at the full range: 1 - e^((epsilon - epsilon_1) / 2).
        return p - (1 - p) * math.expm1(min(epsilon - self.epsilon_1, 0.0) / 2)

    @property
    def variance(self) -> float:
        """Variance of one report, the same for every rating.

        Returns
        -------
        float
            Variance, in squared units of the ratings.
        """
        return (1 - self.truth_probability) * 2 * self._scale * self._scale

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        values = check_reals("values", values, "use the ratings").astype(np.float64, copy=False)
        return np.asarray(np.where(np.isnan(values), self.low, values).clip(self.low, self.high))

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        words = key.words(self._purpose, round=round_number, size=2 * values.size).reshape(-1, 2)
        out[...] = values
        self._report(out.reshape(-1), words)

    def _report(self, values: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Turn values in place into their reports, from two words for each value."""
        # The comparison equals as_uniform(word) >= truth_probability, without an array of doubles.
        threshold = math.ceil(Fraction(self.truth_probability) * 2**52 - Fraction(1, 2)) << 12
        noisy = np.flatnonzero(words[:, 0] >= threshold)
        centred = as_uniform(words[noisy, 1]) - 0.5
        # The inverse distribution function of the Laplace distribution, kept finite at the ends.
        values[noisy] -= self._scale * np.sign(centred) * np.log1p(-2 * np.minimum(np.abs(centred), 0.5 - 2.0**-54))
        return values

    def on_grid(self, grid: int | Sequence[float]) -> Channel:
        """Return the mechanism with noisy ratings clipped and rounded to a grid, which makes epsilon finite.

        The epsilon is still far above the published claim.

        Parameters
        ----------
        grid : int or sequence of numbers
            At most 32 increasing values; an integer n means 0, 1, ..., n - 1.

        Returns
        -------
        Channel
            The channel, with an exact epsilon.
        """
        if self.truth_probability == 1:
            raise ValueError(
                f"epsilon_2 must be below 36 for a table, got {self.epsilon_2}, which rounds p to 1; use a smaller one"
            )
        noise = RoundedLaplace(self.epsilon_1, grid)
        targets = _mix(noise, Fraction(self.truth_probability))
        return Channel(**unbiased_table(targets, _largest_ratio(targets), noise.inputs))
