"""Skellam noise on sums: added by one party, or in shares by the nodes that send the summands."""

import functools
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._skellam import LARGEST_SQUARE, LARGEST_VARIANCE, skellam_loss
from fastfedrec.accounting.events._central import CentralEvent, described, replaced_words
from fastfedrec.accounting.events._event import Event, EventLoss, UnsupportedEventError, store
from fastfedrec.accounting.events._shares import SharedNoise, described_shares
from fastfedrec.accounting.rounding import count_up, up
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.numbers import float_up

# Parameters that both events of Skellam noise have.
_SUMS = """\
l2_sensitivity : float
    Maximum change of the whole numbers under `neighboring`, in Euclidean norm.
n_values : int
    Number of whole numbers in one release.
l1_sensitivity : float or None
    Maximum change in sum of absolute values.  None counts as the smaller of ``l2_sensitivity**2`` and
    ``sqrt(n_values) * l2_sensitivity``, which hold for all changes by whole numbers; a larger value has no effect.
replace_sensitivity : float or None
    The largest distance between the contributions of two units over `l2_sensitivity`, in [1, 2].  The square root of 2
    holds for contributions with non-negative inner products.  None counts as 2, which always holds.  The sum of
    absolute values always counts twice.
sampling : {"none"}
    Required; any other value raises.
sampling_probability, n_users, cohort_size : None
    Not used by this event.
privacy_unit : {"user", "interaction"}
    Unit in which neighbouring data sets differ."""

_described = shares_docstring(_SUMS)


@described
@_described
@dataclass(frozen=True)
class SkellamRelease(CentralEvent):
    """Sums of whole numbers with Skellam noise, released by a trusted party.

    Parameters
    ----------
    variance : float
        Variance of the noise on each sum.
    mechanism : str
        Name, for the ledger.

    Notes
    -----
    The Renyi divergence is the bound of Corollary 3.6 of [1]_.  Its whole orders have a bound for each order between
    them, by convexity.  One whole number has an exact privacy loss as well.

    References
    ----------
    .. [1] Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially private federated learning", NeurIPS 2021.
    """

    variance: float
    l2_sensitivity: float
    n_values: int
    mechanism: str = "Skellam"
    l1_sensitivity: float | None = field(default=None, kw_only=True)
    replace_sensitivity: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        store(
            self,
            variance=check_real("variance", self.variance, low=0.0, exclusive=True),
            l2_sensitivity=check_real("l2_sensitivity", self.l2_sensitivity, low=0.0, exclusive=True),
            n_values=check_integer("n_values", self.n_values, low=1),
        )
        if self.l1_sensitivity is not None:
            l1_sensitivity = check_real("l1_sensitivity", self.l1_sensitivity, low=0.0, exclusive=True)
            store(self, l1_sensitivity=l1_sensitivity)
        if self.replace_sensitivity is not None:
            store(self, replace_sensitivity=self._checked_replace_sensitivity())

    def _checked_replace_sensitivity(self) -> float:
        """Return the checked `replace_sensitivity`."""
        if self.neighboring == "replace":
            raise ValueError(
                f"`replace_sensitivity` must be None with neighboring='replace', got {self.replace_sensitivity!r}; "
                "multiply l2_sensitivity by it instead"
            )
        sensitivity = check_real("replace_sensitivity", self.replace_sensitivity, low=0.0)
        if not 1 <= sensitivity <= 2:
            raise ValueError(
                f"`replace_sensitivity` must be from 1 to 2, got {sensitivity!r}; it is the largest distance between "
                "two contributions over the sensitivity, and the triangle inequality bounds it by 2"
            )
        return sensitivity

    @property
    def _noise_variance(self) -> float:
        """Variance of the noise that counts, rounded down."""
        return self.variance

    @property
    def _l1_bound(self) -> float:
        """Smallest of the three bounds on the change in sum of absolute values, rounded up."""
        # A whole number is at most its square, and the Cauchy-Schwarz inequality gives the other bound.
        l2 = Fraction(self.l2_sensitivity)
        bounds = [float_up(l2 * l2), up(math.sqrt(count_up(self.n_values)) * self.l2_sensitivity)]
        return min(bounds if self.l1_sensitivity is None else [*bounds, self.l1_sensitivity])

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        if not (variance := self._noise_variance):
            raise UnsupportedEventError("no share of the noise counts; wait for more answers")
        return count_up(self.count) * _renyi.skellam(orders, variance, self._l1_bound, self.l2_sensitivity)

    def _loss(self) -> EventLoss:
        variance = self._noise_variance
        # A change is a whole number.
        change = int(min(self._l1_bound, self.l2_sensitivity))
        is_known = self.n_values == 1 and change and change**2 <= variance * LARGEST_SQUARE
        if not (is_known and variance <= LARGEST_VARIANCE):
            raise UnsupportedEventError(
                f"privacy losses of Skellam noise are known for one value, variance up to {LARGEST_VARIANCE:g}, and a "
                f"change of up to {math.sqrt(LARGEST_SQUARE):g} standard deviations, got {self.n_values} values, "
                f"variance {variance:g} and change {change}; use RDPAccountant"
            )
        return functools.partial(skellam_loss, variance, change), self.count

    def _for_replacement(self) -> Event | None:
        # Two contributions differ by twice the bound of one, or by the stated smaller distance in Euclidean norm.
        # The sum of absolute values has no smaller factor: contributions to different sums attain 2.
        l2 = float_up(Fraction(self.l2_sensitivity) * Fraction(self.replace_sensitivity or 2.0))
        l1 = 2 * self._l1_bound
        if math.isinf(l1) or math.isinf(l2):
            return None
        return replace(self, neighboring="replace", l2_sensitivity=l2, l1_sensitivity=l1, replace_sensitivity=None)

    def _details(self) -> str:
        return super()._details() + replaced_words(self.replace_sensitivity)


@described
@described_shares
@_described
@dataclass(frozen=True)
class SkellamShares(SharedNoise, SkellamRelease):
    """Sums of whole numbers to which each node adds a share of Skellam noise, before a secure aggregation.

    Parameters
    ----------
    variance : float
        Variance of one share, on each sum.
    mechanism : str
        Name, for the ledger.
    """

    mechanism: str = "Skellam noise in shares"

    @property
    def _noise_variance(self) -> float:
        return -float_up(-self._n_shares(self.honest_fraction) * Fraction(self.variance))
