"""The template of the mechanisms that draw reports of private values."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.core.immutable import Immutable
from fastfedrec.core.randomness import Key, claim_call
from fastfedrec.mechanisms._opendp import Space, import_opendp, make_measurement
from fastfedrec.mechanisms.report_checks import draws_reports, fill_missing, report_array

Report = TypeVar("Report", bound=np.generic)


class Randomizer(Immutable, ABC, Generic[Report]):
    """Base of the mechanisms with `privatize`; each gives a preparation of the values and a draw of the reports."""

    #: Purpose of the random streams; no two mechanisms have the same.
    _purpose: ClassVar[str]

    @draws_reports
    def privatize(
        self,
        values: ArrayLike,
        *,
        key: Key | None = None,
        round: int = 0,
        out: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> NDArray[Report]:
        """Draw one report for each value.

        Parameters
        ----------
        values : array_like
            Private values in the form that the class states; for a `Channel`, positions in `inputs`.  Values that are
            numbered from 0 are integers; uint8, uint16, int32 and int64 are read in place.  One out of range counts as
            the nearest one, and a missing entry as 0, because whether a client answers must not depend on its data.
        out : ndarray or None
            Output array in the type and shape of the reports; None makes a new array.  For integers it may be `values`
            itself.

        Returns
        -------
        ndarray
            Reports, in the shape of `values` if the class states no other; if it has `outputs`, positions in them.
        """
        return self._release(fill_missing(values), key, round, out, n_threads)

    def to_opendp(self) -> Any:
        """Return the mechanism as a measurement of the package OpenDP, for its combinators.

        Returns
        -------
        opendp.mod.Measurement
            Measurement that draws a new key from entropy at each call.  Exact noise takes vectors of int64, under the
            L1 distance with a pure cost (`DiscreteLaplace`) or the L2 distance with a zCDP cost (`DiscreteGaussian`).
            A randomizer takes one value, and any two values have distance 1.  Costs are rounded up.

        Raises
        ------
        ImportError
            OpenDP is not installed.
        TypeError
            OpenDP has no measure for the guarantee, or there is none.
        opendp.mod.OpenDPException
            OpenDP's features "contrib" and "honest-but-curious" are not enabled.  The caller must enable them.

        Examples
        --------
        >>> from fastfedrec.mechanisms import DiscreteLaplace
        >>> measurement = DiscreteLaplace(20).to_opendp()  # doctest: +SKIP
        >>> measurement.map(10)  # doctest: +SKIP
        0.5
        """
        dp = import_opendp()
        return make_measurement(dp, self, self._opendp_space(dp))

    def _opendp_space(self, dp: Any) -> Space:
        """Return the inputs and the privacy of the measurement, or raise."""
        raise TypeError(f"OpenDP has no measure for the guarantee of {type(self).__name__}")

    def _release(
        self, values: ArrayLike, key: Key | None, round: int, out: np.ndarray | None = None, n_threads: int = 1
    ) -> NDArray[Report]:
        """Check all arguments, claim the key, and draw the reports."""
        prepared = self._prepare_values(values)
        out = report_array(out, prepared, self._report_types, self._report_shape(prepared))
        # The checks come first, so that a call that they refuse does not use up the key.
        key, round_number, n_threads = claim_call(f"{type(self).__name__}.privatize", key, round, n_threads)
        self._draw_reports(prepared, out, key, round_number, n_threads)
        return out

    @property
    @abstractmethod
    def _report_types(self) -> Sequence[type]:
        """Types that `out` may have; the first one is the type of a new array."""

    def _report_shape(self, values: np.ndarray) -> tuple[int, ...]:
        """Return the shape of the reports."""
        return values.shape

    @abstractmethod
    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        """Return the values as an array, or raise an error that depends only on their type and shape."""

    @abstractmethod
    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        """Draw the reports of prepared values into `out`, from streams of `_purpose`."""
