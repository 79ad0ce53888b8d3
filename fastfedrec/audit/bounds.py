"""Audit a privacy claim: the exact epsilon of a finite channel, a statistical lower bound for anything else.

The ledger says what a mechanism costs at most; the audit says what it demonstrably costs at least.  A lower bound above
the claim refutes the claim.  One below it proves nothing: the audit may have missed the event that tells the inputs
apart.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from fastfedrec.accounting.gaussian import gaussian_mu
from fastfedrec.audit import _events
from fastfedrec.audit._limits import lower_limit, upper_limit
from fastfedrec.audit._outputs import Outputs
from fastfedrec.audit.draws import draw_outputs, is_drawn_singly, is_gaussian
from fastfedrec.core.check import check_choice, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import TOTAL, Channel, exp_lower, log_upper

__all__ = ["AuditResult", "audit"]

# Draws from each input that bound an event well enough: a bound of at least 0.95 epsilon with 95% confidence and
# power, for the harder of a Laplace tail and generalized randomized response on 10 values.
_DRAWS = {0.5: 4.7e5, 1.0: 1.0e5, 2.5: 2.4e4, 5.0: 5.8e4}
_MAX_DEFAULT_DRAWS = 2_000_000
_SINGLY = 10  # so many times fewer draws where each is a call of its own
_SIMPLER = 0.01  # candidates come in the order of simplicity: a later one must be better by this share


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Parameters
    ----------
    lower_bound : float
        What the two inputs demonstrably cost; with `method` "exact", what they cost, rounded up in the last digit.
    claim : float
        As given; where an (epsilon, delta) claim was audited in mu, the mu that it comes to.
    verdict : str
        "violated" where the claim is refuted, else "consistent", which is no proof of the claim.
    event : str
        The set of outputs that tells the two inputs apart, in words.
    draws : int
        Outputs drawn from each input; 0 where nothing had to be drawn.
    method : str
        "exact", "ratio", "one bit" or "gaussian": how the event was bounded.
    measure : str
        "epsilon" or "mu": the unit of `lower_bound` and `claim`.
    delta : float
        The claim's delta.
    alpha : float
        Probability that a true claim is called violated, at most; 0 for an exact result.
    shares : tuple of float
        Share of outputs in the event, on the first and on the second input.
    overall : float or None
        For a `Channel`, the cost of its worst pair of inputs; the verdict is about that one.

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

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values that JSON can hold.

        Returns
        -------
        dict
            One entry an attribute.  An infinite bound is "infinite", which no program takes for a number or for
            "not set"; None is for no `overall`.
        """
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["shares"] = list(self.shares)
        return {name: "infinite" if isinstance(v, float) and math.isinf(v) else v for name, v in values.items()}

    def __str__(self) -> str:
        exact = self.method == "exact"
        relation = "is" if exact else "is at least"
        how = "exact" if exact else f"confidence {1 - self.alpha:.6g}"
        delta = f" at delta {self.delta:g}" if self.delta else ""
        first, second = (f"{share:.2%}" for share in self.shares)
        lines = [
            f"{self.verdict.upper()}: {self.measure} {relation} {self.lower_bound:.5g} ({how}), "
            f"the claim is {self.claim:.5g}{delta}",
            f"event: {self.event}: {first} on the first input, {second} on the second",
        ]
        if self.overall is not None:
            lines.append(f"worst pair of inputs: {self.measure} {self.overall:.5g}")
        if not exact:
            lines.append(f"{self.draws:,} draws from each input: one half chose the event, the other bounded it")
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
) -> AuditResult:
    """Look for evidence against a privacy claim.

    Parameters
    ----------
    mechanism : Channel, mechanism or callable
        A `Channel` is computed exactly.  From an object with ``privatize``, ``add_noise`` or ``randomise`` (as
        diffprivlib's), and from an OpenDP measurement, outputs are drawn as they are.  Anything else is called as
        ``mechanism(x, n)`` and returns `n` independent outputs on the input `x`: numbers, text, bytes, None, or lists,
        tuples, sets, dicts and arrays of them, of any length.
    x0, x1 : object
        Two neighbouring inputs.  For a `Channel`, positions in its ``inputs``; for an object, a value or a row of
        values; for anything else, whatever it takes.
    claim : float
        The epsilon (or mu) that is claimed for one output; at least 0.
    n : int or None
        Draws from each input, at least 100; None takes enough for a bound of about 0.95 of the claim where the event
        is not rare, up to 2 million, and a tenth of that where each draw is a call of its own (`ExponentialMechanism`
        and other libraries).  Where a call raises an exception, each draw becomes a call, up to 20,000, and raising it
        is an output like any other.
    alpha : float
        Probability that a true claim is called violated, at most; in (0, 0.25].
    delta : float
        The claim's delta, in [0, 1).
    measure : str
        "epsilon" for an (epsilon, delta) claim, "mu" for one in Gaussian differential privacy.  "auto" is "mu" for
        Gaussian noise of this package, of diffprivlib, and for OpenDP measurements in zero-concentrated differential
        privacy, else "epsilon"; an (epsilon, delta) claim of Gaussian noise becomes the mu that it comes to.
    key : Key or None
        For mechanisms of this package: a seed's key repeats the audit, None draws from entropy.

    Returns
    -------
    AuditResult
        The bound, the verdict, and the event.

    Raises
    ------
    TypeError
        A mechanism that cannot be drawn from, or that returns objects of an unknown type.
    ValueError
        A parameter out of range, or the wrong number of outputs.
    Exception
        Whatever the mechanism raises, if it raises on every draw from both inputs.

    Notes
    -----
    Half of the draws choose the event, and the way to bound it: out of thresholds, intervals and repeated values of
    outputs, of their coordinates and of what these decide together, of lengths and types, "is not finite", "is -0.0",
    "raises an exception", "is a multiple of 2^-k", single bits and remainders.  Integers of any size are exact.
    Only this one event is then counted on the other half.  So it does not matter how many events were tried: the draws
    that bound it have not been looked at, and the confidence needs no correction.
    An audit spends no privacy of anyone, because it runs on inputs that you make up.

    With Clopper-Pearson limits of the shares p0 and p1 of an event, and t = e^epsilon, the bounds are

    - ratio: log((lower(p1; alpha/2) - delta) / upper(p0; alpha/2)), for any event;
    - one bit: an (epsilon, delta) claim keeps the share p of right guesses of the input below (t + delta) / (1 + t),
      so epsilon is at least log((lower(p; alpha) - delta) / (1 - lower(p; alpha))); the better one where the event
      is about as likely on one input as its opposite on the other.  The guesses do not have one common
      probability, but the tail of their number is then no heavier than the binomial one [2]_;
    - gaussian: mu is at least Phi^-1(lower(p1; alpha/2)) - Phi^-1(upper(p0; alpha/2)).

    The outputs of one input must be independent, and independent of the other's.  A `Channel`'s table says nothing
    about its sampler; audit that as a callable.

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
    claim = check_real("claim", claim, low=0.0)
    delta = check_real("delta", delta, low=0.0)
    if delta >= 1:
        raise ValueError(f"delta must be less than 1, got {delta}: at 1 every mechanism keeps the claim")
    alpha = check_real("alpha", alpha, low=0.0, high=0.25)
    if alpha == 0:
        raise ValueError("alpha must be greater than 0, got 0.0: no finite number of draws is certain")
    check_choice("measure", measure, ("auto", "epsilon", "mu"))
    if n is not None:
        n = check_integer("n", n, low=100)
    if key is not None:
        check_instance("key", key, Key, "use Key.from_seed(n), or None to draw from entropy")
    if measure == "mu" and delta:
        raise ValueError(f"delta must be 0 for a claim in mu, got {delta}: mu fixes delta for every epsilon")
    if isinstance(mechanism, Channel):
        if measure == "mu":
            raise ValueError("measure must be 'epsilon' for a Channel; to bound mu, audit its privatize as a callable")
        return _audit_channel(mechanism, x0, x1, claim, delta)
    if n is None:
        n = _default_draws(claim) // (_SINGLY if is_drawn_singly(mechanism) else 1)
    if measure == "auto":
        measure = "mu" if is_gaussian(mechanism) else "epsilon"
        if measure == "mu" and delta:
            claim, delta = _largest_mu(claim, delta), 0.0
    outputs = draw_outputs(mechanism, (x0, x1), n, key)
    n = len(outputs[0])
    half = n // 2
    with np.errstate(all="ignore"):  # outputs that are not finite are what some events are about
        event, method, swapped = _choose([y[:half] for y in outputs], (x0, x1), alpha, delta, measure)
        counts = [int(event.holds(y[half:]).sum()) for y in outputs]
    likely, unlikely = reversed(counts) if swapped else counts
    bound = float(_BOUNDS[method](likely, unlikely, n - half, alpha, delta))
    return AuditResult(
        lower_bound=max(bound, 0.0),
        claim=claim,
        verdict="violated" if bound > claim else "consistent",
        event=event.words,
        draws=n,
        method=method,
        measure=measure,
        delta=delta,
        alpha=alpha,
        shares=(counts[0] / (n - half), counts[1] / (n - half)),
    )


# ---- finite channels -----------------------------------------------------------------------------------------------


def _audit_channel(channel: Channel, x0: Any, x1: Any, claim: float, delta: float) -> AuditResult:
    positions = [check_integer(f"x{i}", x, low=0, high=len(channel.inputs) - 1) for i, x in enumerate((x0, x1))]
    p, q = (channel.counts[x] for x in positions)
    exact_delta = Fraction(delta)
    ratio, members = max(_likeliest(p, q, exact_delta), _likeliest(q, p, exact_delta), key=lambda found: found[0])
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
    """The mu that (epsilon, delta) of Gaussian noise comes to; at epsilon 0, delta is the total variation distance."""
    return gaussian_mu(epsilon, delta) if epsilon > 0 else 2 * float(scipy.special.ndtri((1 + delta) / 2))


def _likeliest(p: tuple[int, ...], q: tuple[int, ...], delta: Fraction) -> tuple[Fraction | float, list[int]]:
    """The largest (P(E) - delta) / Q(E) over all events E, and the E: a prefix in the order of likelihood ratios."""
    possible = [y for y in range(len(p)) if p[y]]
    order = sorted(possible, key=lambda y: (q[y] > 0, -Fraction(p[y], q[y] or 1)))
    best: tuple[Fraction | float, int] = (Fraction(1), 0)
    in_p, in_q = -delta * TOTAL, 0
    for length, y in enumerate(order, start=1):
        in_p, in_q = in_p + p[y], in_q + q[y]
        if in_p <= 0:
            continue
        ratio = Fraction(in_p, in_q) if in_q else math.inf
        if ratio > best[0] or (ratio == best[0] and best[1]):  # of equally telling events the likeliest
            best = ratio, length
    return best[0], order[: best[1]]


def _log(ratio: Fraction | float) -> float:
    return math.inf if isinstance(ratio, float) else log_upper(ratio)


# ---- drawing -------------------------------------------------------------------------------------------------------


def _default_draws(claim: float) -> int:
    """Twice the table's draws, since half of them choose: interpolated, as 1 / claim^2 below it, as e^claim above."""
    known = np.array(list(_DRAWS))
    inside = float(np.clip(claim, known[0], known[-1]))
    log_draws = float(np.interp(math.log(inside), np.log(known), np.log(list(_DRAWS.values()))))
    if claim > inside:
        log_draws += claim - inside
    elif claim < inside:
        log_draws += 2 * math.log(inside / claim) if claim > 0 else math.inf
    return int(min(2 * math.exp(min(log_draws, 700.0)), _MAX_DEFAULT_DRAWS) + 0.5)


# ---- bounds --------------------------------------------------------------------------------------------------------


def _ratio_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    excess = np.maximum(lower_limit(likely, n, alpha / 2) - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(excess) - np.log(upper_limit(unlikely, n, alpha / 2))


def _one_bit_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    right = lower_limit(np.asarray(likely) + (n - np.asarray(unlikely)), 2 * n, alpha)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(right - delta, 0.0)) - np.log1p(-right)


def _gaussian_bound(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    return scipy.special.ndtri(lower_limit(likely, n, alpha / 2)) - scipy.special.ndtri(
        upper_limit(unlikely, n, alpha / 2)
    )


_BOUNDS = {"ratio": _ratio_bound, "one bit": _one_bit_bound, "gaussian": _gaussian_bound}


# Above each bound, and much faster: the shares themselves, and where a count is 0 or n the limits of that.  They leave
# few events that could be better than the best so far.


def _largest_share(successes: Any, n: int, alpha: float) -> np.ndarray:
    return np.minimum(successes / n, alpha ** (1 / n))


def _ratio_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    excess = np.maximum(_largest_share(likely, n, alpha / 2) - delta, 0.0)
    return np.log(excess) - np.log(1 - _largest_share(n - unlikely, n, alpha / 2))


def _one_bit_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    right = _largest_share(likely + (n - unlikely), 2 * n, alpha)
    return np.log(np.maximum(right - delta, 0.0)) - np.log1p(-right)


def _gaussian_ceiling(likely: Any, unlikely: Any, n: int, alpha: float, delta: float) -> np.ndarray:
    first, second = _largest_share(likely, n, alpha / 2), 1 - _largest_share(n - unlikely, n, alpha / 2)
    return scipy.special.ndtri(first) - scipy.special.ndtri(second)


_CEILINGS = {"ratio": _ratio_ceiling, "one bit": _one_bit_ceiling, "gaussian": _gaussian_ceiling}


def _choose(
    outputs: list[Outputs], inputs: tuple[Any, Any], alpha: float, delta: float, measure: str
) -> tuple[_events.Event, str, bool]:
    """The event and method with the highest bound on these draws, and whether the event is likelier on x1.

    Ranked at a thousandth of alpha: the best of a thousand noisy bounds would else be the luckiest rare event.
    """
    strict = alpha / 1000
    methods = ("ratio", "one bit") if measure == "epsilon" else ("gaussian",)
    best: tuple[float, Any] = (-math.inf, None)
    for batch in _events.candidates(outputs, inputs):
        for swapped in (False, True):
            unlikely, likely = batch.counts if swapped else batch.counts[::-1]
            for method in methods:
                least = best[0] + _SIMPLER * abs(best[0]) if math.isfinite(best[0]) else -math.inf
                better = np.flatnonzero(_CEILINGS[method](likely, unlikely, batch.n, strict, delta) > least)
                if not len(better) and best[1] is not None:
                    continue
                better = better if len(better) else np.arange(1)
                bounds = _BOUNDS[method](likely[better], unlikely[better], batch.n, strict, delta)
                i = int(np.argmax(bounds))
                if best[1] is None or bounds[i] > least:
                    best = float(bounds[i]), (batch.make(int(better[i])), method, swapped)
    return best[1]
