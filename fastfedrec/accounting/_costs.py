"""What one event costs by itself: pure epsilon, delta, or rho; and which sampling there are theorems of."""

import math
from fractions import Fraction

from fastfedrec.accounting.events import (
    CentralRelease,
    DiscreteGaussianRelease,
    Event,
    Gaussian,
    Laplace,
    LocalReports,
    ShuffledReports,
    UnsupportedEventError,
)
from fastfedrec.accounting.rounding import (
    ABSOLUTE,
    LARGEST_EXPONENT,
    inverse_up,
    replaced_epsilon,
    sampled_epsilon,
    up,
)
from fastfedrec.core.numbers import float_up

_SAMPLING_THEOREMS: tuple[tuple[str, str], ...] = (("poisson", "add_remove"), ("without_replacement", "replace"))
_MAX_NOISE = 1e300  # more noise is counted as this


def gaussian_rho(event: Gaussian) -> float:
    """The rho of unsampled Gaussian noise, all uses of one event.

    Parameters
    ----------
    event : Gaussian
        What happened; its sampling is not looked at.

    Returns
    -------
    float
        Rounded up; infinite where no float is as large.
    """
    return float_up(event.count / (2 * Fraction(event.noise_multiplier) ** 2))


def discrete_gaussian_rho(event: DiscreteGaussianRelease) -> float:
    """The rho of discrete Gaussian noise, all uses of one event.

    Parameters
    ----------
    event : DiscreteGaussianRelease
        What happened.

    Returns
    -------
    float
        Rounded up; infinite where no float is as large.
    """
    return float_up(event.count * Fraction(event.sensitivity) ** 2 / (2 * Fraction(event.stddev) ** 2))


def pure_cost(event: Event) -> tuple[float, int]:
    """The pure epsilon of one use, and how many uses of it an event is.

    Parameters
    ----------
    event : LocalReports, ShuffledReports, CentralRelease or Laplace
        What happened.

    Returns
    -------
    epsilon : float
        After amplification by sampling.
    uses : int
        All on the same user.

    Raises
    ------
    UnsupportedEventError
        It has no pure epsilon, or no theorem covers its sampling.
    """
    if isinstance(event, LocalReports | ShuffledReports):
        return event.epsilon, event.n_reports
    if isinstance(event, CentralRelease):
        epsilon = event.epsilon
    elif isinstance(event, Laplace):
        epsilon = inverse_up(event.noise_multiplier)
    else:
        raise UnsupportedEventError("it has no pure epsilon")
    check_sampling(event)
    if event.sampling == "none":
        return epsilon, event.count
    if isinstance(event, Laplace) and (noise := opposite_noise(event)):
        return replaced_epsilon(inverse_up(noise), event.sampling_rate), event.count
    return sampled_epsilon(epsilon, event.sampling_rate), event.count


def pure_rho(epsilon: float) -> float:
    """The rho of a release with a pure epsilon: epsilon tanh(epsilon / 2), the least that holds for all of them.

    Parameters
    ----------
    epsilon : float
        Of one release.

    Returns
    -------
    float
        Rounded up; randomized response attains it at orders near 1 (docs/explanation/accounting/pure-releases.md).
    """
    return up(epsilon * math.tanh(epsilon / 2))


def bounded_choices(event: Event) -> tuple[float, int] | None:
    """The bounded range of one choice by an exponential mechanism, and how many choices an event is.

    Parameters
    ----------
    event : event
        What happened.

    Returns
    -------
    (float, int) or None
        The range is rounded up.  None for all other events, and under sampling, which does not keep ranges bounded.
    """
    if not isinstance(event, CentralRelease) or event.n_choices is None or event.sampling != "none":
        return None
    return float_up(Fraction(event.epsilon) / event.n_choices), event.count * event.n_choices


def bounded_range_rho(epsilon: float) -> float:
    """The rho of a release of bounded range: log((e^epsilon - 1) / epsilon) - 1 + epsilon / (e^epsilon - 1).

    Parameters
    ----------
    epsilon : float
        The range.

    Returns
    -------
    float
        Rounded up, and at most epsilon^2 / 8; the least that holds for all of them
        (docs/explanation/accounting/pure-releases.md).
    """
    epsilon = max(epsilon, 1e-300)
    half = epsilon / 2
    terms = half, math.log(-math.expm1(-epsilon)), -math.log(epsilon), half / math.tanh(half), -1.0
    return up(min(epsilon * epsilon / 8, math.fsum(terms) + ABSOLUTE * math.fsum(map(abs, terms))))


def release_delta(event: CentralRelease) -> float:
    """The delta of one release after amplification by sampling: delta times the sampling rate.

    Parameters
    ----------
    event : CentralRelease
        What happened; `check_sampling` accepts its sampling.

    Returns
    -------
    float
        Rounded up.
    """
    rate = Fraction(event.sampling_probability or 1)
    if event.sampling == "without_replacement":
        rate = Fraction(event.cohort_size or 0, event.n_users or 1)
    return float_up(rate * Fraction(event.delta))


def opposite_noise(event: Gaussian | Laplace) -> float | None:
    """Noise over the bound of one contribution, where a pair of two opposite contributions states the cost.

    Parameters
    ----------
    event : Gaussian or Laplace
        What happened; `check_sampling` accepts it.

    Returns
    -------
    float or None
        Rounded down.  None for other sampling or relations, and for Gaussian noise where the pair of sampling without
        replacement at the sensitivity has a smaller chi-squared divergence for rare samples.

    Notes
    -----
    Both pairs dominate, so either choice is an upper bound.
    """
    if (event.sampling, event.neighboring) != ("poisson", "replace") or event.contribution is None:
        return None
    noise = -float_up(-Fraction(min(event.noise_multiplier, _MAX_NOISE)) / Fraction(event.contribution))
    if isinstance(event, Gaussian):
        inverse = 1 / event.noise_multiplier
        square = min(inverse * inverse, LARGEST_EXPONENT)
        if 4 * math.sinh(event.contribution**2 * square) > math.expm1(square):
            return None
    return noise


def check_sampling(event: Gaussian | Laplace | CentralRelease) -> None:
    """Raise unless amplification by the event's sampling is proved for its neighbouring relation.

    Parameters
    ----------
    event : event of a trusted server
        What happened.

    Raises
    ------
    UnsupportedEventError
        Poisson sampling needs "add_remove", or for Gaussian noise on sums any relation, or for Laplace noise with a
        `contribution` "replace"; sampling without replacement needs "replace".

    Notes
    -----
    A unit that adds nothing to a sum is as good as one that was not drawn, so for sums "zero_out" has the pair of
    distributions of "add_remove".  Another release may tell a unit without data from none, and where cohorts have a
    fixed size, a unit that was not drawn has made room for another, who may be further from it than it is from none.
    Under "replace" the sensitivity of a Gaussian also bounds one contribution, unless `contribution` states a smaller
    bound (docs/explanation/accounting/poisson-replacement.md).
    """
    pair = (event.sampling, event.neighboring)
    proved = _SAMPLING_THEOREMS
    if isinstance(event, Gaussian):
        proved += (("poisson", "zero_out"), ("poisson", "replace"))
    elif isinstance(event, Laplace) and event.contribution is not None:
        proved += (("poisson", "replace"),)
    if event.sampling != "none" and pair not in proved:
        only = "; only Gaussian noise, and Laplace noise with a contribution, state how far a unit is from none"
        why = only if pair[0] == "poisson" else ""
        raise UnsupportedEventError(
            f"no theorem is known here for sampling={pair[0]!r} with neighboring={pair[1]!r}{why}"
        )
