"""Audits of a privacy claim: the exact epsilon of a finite channel, and a statistical lower bound for other mechanisms.

The ledger states an upper bound of a mechanism's cost, and the audit a lower bound.  A lower bound above the claim
refutes the claim.  A lower bound below the claim is no proof: the audit may have missed the event that distinguishes
the inputs.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from fastfedrec.accounting.gaussian import gaussian_mu
from fastfedrec.audit._choice import choose_event
from fastfedrec.audit._repeats import log_chance_of_repeat
from fastfedrec.audit.draws import (
    ChangedOutputs,
    Draw,
    Sample,
    adapt,
    draw_sample,
    is_drawn_singly,
    is_gaussian,
)
from fastfedrec.core.check import check_choice, check_flag, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower, log_upper

__all__ = ["AuditResult", "audit"]

# Number of draws from each input, by the claim.  They give a bound of at least 0.95 epsilon with 95% confidence and
# power, for the harder of a Laplace tail and generalized randomized response on 10 values.
_DRAWS = {0.5: 4.7e5, 1.0: 1.0e5, 2.5: 2.4e4, 5.0: 5.8e4}
_MAX_DEFAULT_DRAWS = 2_000_000
# Divisor of the number of draws if each draw is a call of its own.
_SINGLE_DRAW_DIVISOR = 10
# Two calls repeat their bits if independent calls return equal outputs with at most this chance, 2^-100.
_LOG_REPEAT_CHANCE = -100 * math.log(2)


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit.

    Parameters
    ----------
    lower_bound : float
        Lower bound of the cost of the two inputs; with `method` "exact", their cost, rounded up in the last digit.
    claim : float
        Claim as given, or the equivalent mu if an (epsilon, delta) claim was audited in mu.
    verdict : str
        "violated" if the claim is refuted, else "consistent", which is no proof of the claim.
    event : str
        Description of the set of outputs that distinguishes the two inputs.
    draws : int
        Number of outputs drawn from each input; 0 for an exact result.
    method : str
        Method of the bound: "exact", "ratio", "one bit", "two events", "gaussian" or "repeat".
    measure : str
        Unit of `lower_bound` and `claim`: "epsilon" or "mu".
    delta : float
        Delta of the claim.
    alpha : float
        Maximum probability that a true claim gets the verdict "violated"; 0 for an exact result.
    shares : tuple of float
        Shares of outputs in the event, on the first and on the second input.  With `method` "two events", shares of
        wrong and of right guesses.
    overall : float or None
        For a `Channel`, the cost of its worst pair of inputs, which decides the verdict.
    n_choosing : int or None
        Number of draws that chose the event, if wide outputs limit it to less than half.

    Examples
    --------
    >>> from fastfedrec.audit import audit
    >>> from fastfedrec.mechanisms import BinaryResponse
    >>> print(audit(BinaryResponse(1.0), 0, 1, claim=0.9))
    VIOLATED: epsilon is 1 (exact), the claim is 0.9
    event: output 0 (decoded to 2.164): 73.11% on the first input, 26.89% on the second
    worst pair of inputs: epsilon 1
    """

    lower_bound: float
    claim: float
    verdict: str
    event: str
    draws: int
    method: str
    measure: str
    delta: float
    alpha: float
    shares: tuple[float, float]
    overall: float | None = None
    n_choosing: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold.

        Returns
        -------
        dict
            One entry for each attribute.  An infinite bound is "infinite", which is neither a number nor a missing
            value; None means no `overall`.
        """
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if self.n_choosing is None:
            del values["n_choosing"]
        values["shares"] = list(self.shares)
        return {name: "infinite" if isinstance(v, float) and math.isinf(v) else v for name, v in values.items()}

    def __str__(self) -> str:
        exact = self.method == "exact"
        relation = "is" if exact else "is at least"
        how = "exact" if exact else f"confidence {1 - self.alpha:.6g}"
        delta = f" at delta {self.delta:g}" if self.delta else ""
        first, second = (f"{share:.2%}" for share in self.shares)
        shares = {
            "two events": f"guesses: {self.event}: {first} wrong, {second} right",
            "repeat": f"event: {self.event}",
        }.get(self.method, f"event: {self.event}: {first} on the first input, {second} on the second")
        lines = [
            f"{self.verdict.upper()}: {self.measure} {relation} {self.lower_bound:.5g} ({how}), "
            f"the claim is {self.claim:.5g}{delta}",
            shares,
        ]
        if self.overall is not None:
            lines.append(f"worst pair of inputs: {self.measure} {self.overall:.5g}")
        if self.method == "repeat":
            lines.append("use a new seed in each call; if outputs are stored or permanent, pass check_repeats=False")
        elif not exact:
            chose = "one half" if self.n_choosing is None else f"{self.n_choosing:,}"
            rest = "other" if self.n_choosing is None else "rest"
            lines.append(f"{self.draws:,} draws from each input: {chose} chose the event, the {rest} bounded it")
        return "\n".join(lines)


def audit(
    mechanism: Any,
    x0: Any,
    x1: Any,
    claim: float,
    n: int | None = None,
    alpha: float = 0.05,
    *,
    delta: float = 0.0,
    measure: str = "auto",
    key: Key | None = None,
    check_repeats: bool = True,
) -> AuditResult:
    """Search for evidence against a privacy claim.

    Parameters
    ----------
    mechanism : Channel, mechanism or callable
        Mechanism to audit.  A `Channel` is computed exactly.  Objects with ``privatize``, ``add_noise`` or
        ``randomise`` (as in diffprivlib) and OpenDP measurements are sampled directly.  Any other object is called as
        ``mechanism(x, n)`` and must return `n` independent outputs on the input `x`.  Outputs are numbers, text, bytes,
        None, tensors, or lists, tuples, sets, dicts, dataclasses, Series, DataFrames and arrays of these, of any
        length.  A dict or a DataFrame of `n` rows has one output in each row.
    x0, x1 : object
        Two neighbouring inputs.  For a `Channel`, positions in its ``inputs``; for an object, a value or a row of
        values; for a callable, any input that it accepts.
    claim : float
        Claimed epsilon (or mu) of one output; at least 0.
    n : int or None
        Number of draws from each input, at least 100.  None selects a number that gives a bound of about 0.95 of the
        claim for an event that is not rare, up to 2 million.  If each draw is a call of its own (`ExponentialMechanism`
        and other libraries), None selects a tenth of that.  If a call raises an exception, each draw becomes a call, up
        to 20,000, and the exception is an output like any other.
    alpha : float
        Maximum probability that a true claim gets the verdict "violated"; in (0, 0.25].
    delta : float
        Delta of the claim, in [0, 1).
    measure : str
        "epsilon" for an (epsilon, delta) claim, "mu" for a claim in Gaussian differential privacy.  "auto" is "mu" for
        Gaussian noise of this package and of diffprivlib, and for OpenDP measurements in zero-concentrated differential
        privacy, and otherwise "epsilon".  An (epsilon, delta) claim of Gaussian noise becomes the equivalent mu.
    key : Key or None
        Key for mechanisms of this package: a seed's key repeats the audit, None draws from entropy.
    check_repeats : bool
        True to refute a mechanism that returns the same outputs in two calls, because its second release has no noise.
        Pass False for stored outputs, and for permanent answers.

    Returns
    -------
    AuditResult
        The bound, the verdict, and the event.

    Raises
    ------
    TypeError
        The mechanism cannot be sampled, or returns objects of an unknown type.
    ValueError
        A parameter is out of range, or the number of outputs is wrong.
    Exception
        The mechanism raises on every draw from both inputs; its own exception is raised.

    Notes
    -----
    Half of the draws choose the event and the method of its bound.  The candidates are thresholds, intervals and
    repeated values of outputs, of their coordinates and of functions of these, of lengths and types.  Further
    candidates are "is not finite", "is -0.0", "raises an exception", "is a multiple of 2^-k", single bits and
    remainders.  Integers of any size are exact.  Of rows, the 8 coordinates with the largest difference of means and up
    to 8 others, among 1,024, whose values differ are measured alone.  Of outputs of several lengths or types, at most
    64 numbers are read, which differ most between the inputs; the others count in whole outputs only.  Only this one
    event is then counted on the other half.  Therefore the number of candidates has no effect: the draws that bound the
    event were not used before, and the confidence needs no correction.
    An audit spends no privacy of any user, because it runs on artificial inputs.

    With Clopper-Pearson limits of the shares p0 and p1 of an event, and t = e^epsilon, the bounds are

    - ratio: log((lower(p1; alpha/2) - delta) / upper(p0; alpha/2)), for any event;
    - one bit: an (epsilon, delta) claim keeps the share p of right guesses of the input below (t + delta) / (1 + t),
      so epsilon is at least log((lower(p; alpha) - delta) / (1 - lower(p; alpha))).  It is the better bound for an
      event that is about as likely on one input as its opposite on the other.  The guesses do not have one common
      probability, but the tail of their number is then at most as heavy as the binomial one [2]_;
    - two events: for outputs of more than 8 numbers, an event guesses each input.  Epsilon is at least
      log((lower(r; alpha/2) - delta) / upper(w; alpha/2)) for the shares r of right and w of wrong guesses among all
      draws.  Both are means of two probabilities, so the same theorem applies [2]_;
    - gaussian: mu is at least Phi^-1(lower(p1; alpha/2)) - Phi^-1(upper(p0; alpha/2)).

    The mechanism is called twice more on the first input, for 256 draws.  If these are equal in order and not refuted
    otherwise, the bits are repeated.  For c_v outputs of each value v among m independent draws, the chance of equal
    order is at most the product of c_v! / m!.  The verdict needs 2^-100, which is less than the rounding error of
    `alpha`; constant outputs never reach it.

    If outputs are wide, fewer draws choose the event and the others are drawn and counted in blocks, so that the audit
    keeps at most 16 MB of outputs from each input.

    The outputs of one input must be independent, and independent of the outputs of the other input.  The exact audit of
    a `Channel` uses its table and not its sampler; audit the sampler as a callable.

    References
    ----------
    .. [1] Clopper, Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
       Biometrika 26, 1934.
    .. [2] Hoeffding, "On the distribution of the number of successes in independent trials", Annals of Mathematical
       Statistics 27, 1956, theorem 4.
    .. [3] Jagielski, Ullman, Oprea, "Auditing differentially private machine learning", NeurIPS 2020.
    .. [4] Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.audit import audit
    >>> def float_laplace(x, n, key=Key.from_seed(1)):
    ...     u = key.uniform("demo", user=int(x), size=n) - 0.5
    ...     return x - np.sign(u) * np.log(1 - 2 * np.abs(u))
    >>> print(audit(float_laplace, 0.0, 1.0, claim=1.0))
    VIOLATED: epsilon is at least 8.8... (confidence 0.95), the claim is 1
    event: output is not a multiple of 2^-53: 27...% on the first input, 0.00% on the second
    200,000 draws from each input: one half chose the event, the other bounded it
    """
    claim, n, alpha, delta = _check_claim(claim, n, alpha, delta, measure, key)
    if isinstance(mechanism, Channel):
        if measure == "mu":
            raise ValueError("measure must be 'epsilon' for a Channel; to bound mu, audit its privatize as a callable")
        return _audit_channel(mechanism, x0, x1, claim, delta)
    test = _ClaimTest.make(mechanism, claim, n, delta, measure, key, check_flag("check_repeats", check_repeats))
    return test.run((x0, x1), test.n, alpha)


def _check_claim(
    claim: Any, n: Any, alpha: Any, delta: Any, measure: Any, key: Any
) -> tuple[float, int | None, float, float]:
    """Return the claim, the number of draws, alpha and delta, or raise an error for the first bad argument."""
    claim = check_real("claim", claim, low=0.0)
    delta = check_real("delta", delta, low=0.0)
    if delta >= 1:
        raise ValueError(f"delta must be less than 1, got {delta}; every mechanism satisfies a claim with delta 1")
    alpha = check_real("alpha", alpha, low=0.0, high=0.25)
    if alpha == 0:
        raise ValueError("alpha must be greater than 0, got 0.0; a finite number of draws gives no certainty")
    check_choice("measure", measure, ("auto", "epsilon", "mu"))
    if n is not None:
        n = check_integer("n", n, low=100)
    if key is not None:
        check_instance("key", key, Key, "use Key.from_seed(n), or None to draw from entropy")
    if measure == "mu" and delta:
        raise ValueError(f"delta must be 0 for a claim in mu, got {delta}: mu fixes delta for every epsilon")
    return claim, n, alpha, delta


@dataclass(frozen=True)
class _ClaimTest:
    """A test of one claim, which can be run on several pairs of inputs with independent draws."""

    draw: Draw
    claim: float
    # Number of draws from each input.
    n: int
    delta: float
    # "epsilon" or "mu".
    measure: str
    check_repeats: bool

    @classmethod
    def make(
        cls, mechanism: Any, claim: float, n: int | None, delta: float, measure: str, key: Key | None, repeats: bool
    ) -> "_ClaimTest":
        """Return the test of a mechanism that is no `Channel`."""
        is_single = is_drawn_singly(mechanism)
        if n is None:
            n = _default_draws(claim) // (_SINGLE_DRAW_DIVISOR if is_single else 1)
        if measure == "auto":
            measure = "mu" if is_gaussian(mechanism) else "epsilon"
            if measure == "mu" and delta:
                claim, delta = _largest_mu(claim, delta), 0.0
        # Single draws with one seed never vary, which events show.
        return cls(adapt(mechanism, key), claim, n, delta, measure, repeats and not is_single)

    def run(self, inputs: tuple[Any, Any], n: int, alpha: float) -> AuditResult:
        """Return the result on two inputs."""
        try:
            result = self._bound(inputs, draw_sample(self.draw, inputs, n), alpha)
        except ChangedOutputs:
            # An event of one type cannot be counted in blocks of another one.
            result = self._bound(inputs, draw_sample(self.draw, inputs, n, in_blocks=False), alpha)
        if self.check_repeats and result.verdict == "consistent":
            log_chance = log_chance_of_repeat(self.draw, inputs[0])
            if log_chance <= _LOG_REPEAT_CHANCE:
                chance = f"10^{log_chance / math.log(10):.0f}"
                return replace(
                    result,
                    lower_bound=math.inf,
                    verdict="violated",
                    event=f"two calls on the first input return the same outputs, by chance at most {chance}",
                    method="repeat",
                    shares=(1.0, 1.0),
                )
        return result

    def _bound(self, inputs: tuple[Any, Any], sample: Sample, alpha: float) -> AuditResult:
        """Return the result by a sample of draws."""
        # Some events are about outputs that are not finite.
        with np.errstate(all="ignore"):
            choice = choose_event(sample.choosing, inputs, alpha, self.delta, self.measure)
            # The draws that are counted had no part in the choice of the event.
            counts = np.zeros(2, dtype=np.int64)
            for outputs in sample.counted:
                counts += choice.event.count(outputs)
        n = sample.n_counted
        bound = choice.bound(counts, n, alpha, self.delta)
        n_trials = 2 * n if choice.method == "two events" else n
        return AuditResult(
            lower_bound=max(bound, 0.0),
            claim=self.claim,
            verdict="violated" if bound > self.claim else "consistent",
            event=choice.event.words,
            draws=sample.n,
            method=choice.method,
            measure=self.measure,
            delta=self.delta,
            alpha=alpha,
            shares=(int(counts[0]) / n_trials, int(counts[1]) / n_trials),
            n_choosing=None if sample.n // 2 == sample.n - n else sample.n - n,
        )


# ---- finite channels -----------------------------------------------------------------------------------------------


def _audit_channel(channel: Channel, x0: Any, x1: Any, claim: float, delta: float) -> AuditResult:
    """Audit a finite channel exactly, by its table."""
    positions = [check_integer(f"x{i}", x, low=0, high=len(channel.inputs) - 1) for i, x in enumerate((x0, x1))]
    p, q = (channel.counts[x] for x in positions)
    exact_delta = Fraction(delta)
    ratio, members = max(_likeliest(p, q, exact_delta), _likeliest(q, p, exact_delta), key=lambda pair: pair[0])
    # The verdict is about the worst pair of inputs, also if the given pair costs less.
    if delta:
        worst = max(_likeliest(a, b, exact_delta)[0] for a in channel.counts for b in channel.counts)
    else:
        worst = channel.likelihood_ratio
    holds = worst <= 1 or (not isinstance(worst, float) and worst <= exp_lower(claim))
    shares = [float(Fraction(sum(row[y] for y in members), TOTAL)) for row in (p, q)]
    words = ", ".join(f"output {y} (decoded to {float(channel.outputs[y]):.5g})" for y in members[:6])
    words += f" or {len(members) - 6} more" if len(members) > 6 else ""
    return AuditResult(
        lower_bound=_log(ratio),
        claim=claim,
        verdict="consistent" if holds else "violated",
        event=words or "none: the outputs are equally likely",
        draws=0,
        method="exact",
        measure="epsilon",
        delta=delta,
        alpha=0.0,
        shares=(shares[0], shares[1]),
        overall=_log(worst),
    )


def _largest_mu(epsilon: float, delta: float) -> float:
    """Return the mu that is equivalent to (epsilon, delta) of Gaussian noise."""
    # At epsilon 0, delta is the total-variation distance.
    return gaussian_mu(epsilon, delta) if epsilon > 0 else 2 * float(scipy.special.ndtri((1 + delta) / 2))


def _likeliest(p: tuple[int, ...], q: tuple[int, ...], delta: Fraction) -> tuple[Fraction | float, list[int]]:
    """Return the largest (P(E) - delta) / Q(E) over all events E, and that E."""
    # The best event is a prefix of the outputs in the order of their likelihood ratios.
    possible = [y for y in range(len(p)) if p[y]]
    order = sorted(possible, key=lambda y: (q[y] > 0, -Fraction(p[y], q[y] or 1)))
    best: tuple[Fraction | float, int] = (Fraction(1), 0)
    in_p, in_q = -delta * TOTAL, 0
    for length, y in enumerate(order, start=1):
        in_p, in_q = in_p + p[y], in_q + q[y]
        if in_p <= 0:
            continue
        ratio = Fraction(in_p, in_q) if in_q else math.inf
        if ratio > best[0] or (ratio == best[0] and best[1]):  # the likeliest of equally good events
            best = ratio, length
    return best[0], order[: best[1]]


def _log(ratio: Fraction | float) -> float:
    """Return the logarithm of a ratio, rounded up."""
    return math.inf if isinstance(ratio, float) else log_upper(ratio)


# ---- drawing -------------------------------------------------------------------------------------------------------


def _default_draws(claim: float) -> int:
    """Return twice the draws of the table, because half of them choose the event."""
    # Between the claims of the table the number is interpolated.  Below, it grows as 1 / claim^2, and above as e^claim.
    known = np.array(list(_DRAWS))
    clipped = float(np.clip(claim, known[0], known[-1]))
    log_draws = float(np.interp(math.log(clipped), np.log(known), np.log(list(_DRAWS.values()))))
    if claim > clipped:
        log_draws += claim - clipped
    elif claim < clipped:
        log_draws += 2 * math.log(clipped / claim) if claim > 0 else math.inf
    return int(min(2 * math.exp(min(log_draws, 700.0)), _MAX_DEFAULT_DRAWS) + 0.5)
