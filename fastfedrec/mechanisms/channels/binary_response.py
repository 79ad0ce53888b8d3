"""Binary response: one bit about a real number in [-1, 1] (Nguyen et al. 2016, "Harmony")."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.mechanisms.channels import binary_response as _kernel
from fastfedrec.core.check import check_epsilon, check_real, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower
from fastfedrec.mechanisms.report_checks import check_integers, check_reals, draws_reports, python_numbers

__all__ = ["BinaryResponse"]

_REMEDY = "2 * x - 1 for answers x of 0 and 1"  # completes "use ..." in error messages


class BinaryResponse(Channel):
    """Answer + with probability 1/2 + t (e^eps - 1) / (2 (e^eps + 1)), for t in [-1, 1].

    **Guarantee.** One answer is `epsilon`-differentially private in the local model: any two values t are neighbours
    ("replace"), the privacy unit is one report, and only the client's own device is trusted.

    Parameters
    ----------
    nominal_epsilon : float
        Greater than 0, in nats; an upper bound on the exact `epsilon`.

    Attributes
    ----------
    nominal_epsilon : float
        As given.
    span : int
        T - 2^63, where T / 2^64 is the largest probability of an answer.
    decoder : float
        Factor of an answer of +-1 that makes it an unbiased estimate of t.

    Notes
    -----
    T is the largest integer with T / (2^64 - T) below a lower bound of e^eps.  The kernel turns a real t into the
    threshold 2^63 + t * span, clamped to [2^64 - T, T], and compares one uniform 64-bit word with it.  The inputs of
    this `Channel` are the two extreme values, which have the largest likelihood ratio.  All other thresholds are
    between theirs.  See docs/explanation/mechanisms/channels/binary-response.md.

    References
    ----------
    .. [1] Nguyen, Xiao, Yang, Hui, Shin, Shin, "Collecting and analyzing data from smart device users with local
       differential privacy", 2016, Algorithm 1.
    .. [2] Minto, Haller, Haddadi, Livshits, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021, Algorithm 1.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import BinaryResponse
    >>> channel = BinaryResponse(1.0)
    >>> 0.999999 < channel.epsilon <= 1.0
    True
    >>> answers = channel.privatize([0.5] * 100_000, key=Key.from_seed(1))
    >>> bool(abs(channel.estimate(answers).mean() - 0.5) < 0.05)
    True
    """

    _purpose = "binary_response.privatize"
    _report_types = (np.int8,)
    _example = {}, (1.0, -1.0)

    def __init__(self, nominal_epsilon: float):
        self.nominal_epsilon = check_epsilon("nominal_epsilon", nominal_epsilon)
        bound = exp_lower(self.nominal_epsilon)
        largest = min(int(TOTAL * bound / (1 + bound)), TOTAL - 1)  # int() rounds toward privacy
        self.span = largest - TOTAL // 2
        if self.span < 1:
            raise ValueError(
                f"nominal_epsilon must be at least about 2.2e-19, got {nominal_epsilon}: no 64-bit bias is smaller; "
                "use a larger one"
            )
        answer = Fraction(TOTAL, 2 * self.span)
        super().__init__(
            [[largest, TOTAL - largest], [TOTAL - largest, largest]], inputs=[1, -1], outputs=[answer, -answer]
        )
        self.decoder = float(answer)

    @draws_reports
    def privatize(  # type: ignore[override]  # reports are signs, not positions in `outputs`
        self,
        values: ArrayLike,
        *,
        key: Key | None = None,
        round: int = 0,
        out: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> NDArray[np.int8]:
        """Draw one answer for each value, clipped to [-1, 1]; False and True count as -1 and +1.

        Parameters
        ----------
        values : array_like of float64, float32, another real type, or bool
            Private values.  A value that is not finite counts as 0, because whether a client answers must not depend
            on its data.  Other types and strided arrays are copied to float64.  Answers of 0 and 1 must be bool: the
            number 0 is a value in [-1, 1], answered by a fair coin.  Unsigned types are refused, since they probably
            hold answers of 0 and 1.
        out : ndarray of int8 or None
            Output array in the shape of `values`; None makes a new array.

        Returns
        -------
        ndarray of int8
            +1 or -1, in the shape of `values`.

        Raises
        ------
        TypeError
            `values` are not real numbers, or have an unsigned type.
        """
        return super().privatize(values, key=key, round=round, out=out, n_threads=n_threads)  # type: ignore[return-value]

    def _opendp_domain(self, dp: Any) -> Any:
        return dp.atom_domain(T="f64")

    def _prepare_values(self, values: ArrayLike) -> np.ndarray:
        array = plain_array("values", values)
        # NumPy makes an unsigned array of Python's integers if one is too large for a signed type.
        if array.dtype.kind == "u" and array.size and python_numbers(values, int) is None:
            raise TypeError(f"values must have a signed type, got {array.dtype}: 0 is a fair coin; use {_REMEDY}")
        # `check_reals` reads large integers of Python from the original values, where they are exact.
        return array if array.dtype.kind in "bif" else check_reals("values", values, _REMEDY)

    def _draw_reports(self, values: np.ndarray, out: np.ndarray, key: Key, round_number: int, n_threads: int) -> None:
        reals = check_reals("values", 2.0 * values - 1.0 if values.dtype == np.bool_ else values, _REMEDY)
        flat, subkey = np.ascontiguousarray(reals).reshape(-1), key.subkey(self._purpose)
        _kernel.respond_values(flat, out.reshape(-1), subkey, self.span, round_number, n_threads)

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Decode each answer of +1 or -1 to an unbiased estimate of its clipped value.

        Parameters
        ----------
        reports : array_like of int
            +1 or -1.

        Returns
        -------
        ndarray of float64
            Estimates, in the shape of `reports`.
        """
        reports = check_integers("reports", reports, "use the answers of privatize")
        if reports.size and not (np.abs(reports) == 1).all():
            raise ValueError("reports must be +1 or -1; use the answers of privatize")
        return reports * self.decoder

    def value_variance(self, t: float) -> float:
        """Return the variance of one decoded answer for the value `t`: decoder^2 - t^2.

        Parameters
        ----------
        t : float
            Value in [-1, 1].

        Returns
        -------
        float
            Variance, at most decoder^2.
        """
        return self.decoder**2 - check_real("t", t, low=-1.0, high=1.0) ** 2
