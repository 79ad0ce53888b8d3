"""The cost of one event alone: pure epsilon, delta, or rho; and the sampling that theorems cover."""

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

# Pairs of a sampling and a neighbouring relation for which amplification is proved for all releases.
_SAMPLING_THEOREMS: tuple[tuple[str, str], ...] = (("poisson", "add_remove"), ("without_replacement", "replace"))
# A larger noise multiplier is counted as this.
_MAX_NOISE = 1e300


def gaussian_rho(event: Gaussian) -> float:
    """Return the rho of all uses of one unsampled Gaussian event, rounded up; infinite above the largest float."""
    # The event's sampling has no effect: the caller accounts for it.
    return float_up(event.count / (2 * Fraction(event.noise_multiplier) ** 2))


def discrete_gaussian_rho(event: DiscreteGaussianRelease) -> float:
    """Return the rho of all uses of one discrete Gaussian event, rounded up; infinite above the largest float."""
    return float_up(event.count * Fraction(event.sensitivity) ** 2 / (2 * Fraction(event.stddev) ** 2))


def pure_cost(event: Event) -> tuple[float, int]:
    """Return the pure epsilon of one use after amplification by sampling, and the number of uses of an event."""
    # Shuffled reports count with their local guarantee, which needs no shuffler.
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
    """Return the rho of a release with a pure epsilon, epsilon tanh(epsilon / 2), rounded up."""
    # Smallest rho that holds for all such releases: randomized response attains it at orders near 1
    # (docs/explanation/accounting/pure-releases.md).
    return up(epsilon * math.tanh(epsilon / 2))


def bounded_choices(event: Event) -> tuple[float, int] | None:
    """Return the range of one exponential mechanism, rounded up, and the number of choices; None for other events."""
    # Sampling does not keep ranges bounded.
    if not isinstance(event, CentralRelease) or event.n_choices is None or event.sampling != "none":
        return None
    return float_up(Fraction(event.epsilon) / event.n_choices), event.count * event.n_choices


def bounded_range_rho(epsilon: float) -> float:
    """Return the rho of bounded range `epsilon`, log((e^epsilon - 1) / epsilon) - 1 + epsilon / (e^epsilon - 1)."""
    # Rounded up, and at most epsilon^2 / 8: the smallest rho that holds for all releases of this range
    # (docs/explanation/accounting/pure-releases.md).
    epsilon = max(epsilon, 1e-300)
    half = epsilon / 2
    terms = half, math.log(-math.expm1(-epsilon)), -math.log(epsilon), half / math.tanh(half), -1.0
    return up(min(epsilon * epsilon / 8, math.fsum(terms) + ABSOLUTE * math.fsum(map(abs, terms))))


def release_delta(event: CentralRelease) -> float:
    """Return the delta of one release after amplification by sampling, delta times the sampling rate, rounded up."""
    rate = Fraction(event.sampling_probability or 1)
    if event.sampling == "without_replacement":
        rate = Fraction(event.cohort_size or 0, event.n_users or 1)
    return float_up(rate * Fraction(event.delta))


def opposite_noise(event: Gaussian | Laplace) -> float | None:
    """Return noise over the bound of one contribution, rounded down, if two opposite contributions state the cost."""
    # The theorem for two opposite contributions covers no other sampling or relation.
    if (event.sampling, event.neighboring) != ("poisson", "replace") or event.contribution is None:
        return None
    noise = -float_up(-Fraction(min(event.noise_multiplier, _MAX_NOISE)) / Fraction(event.contribution))
    if isinstance(event, Gaussian):
        inverse = 1 / event.noise_multiplier
        square = min(inverse * inverse, LARGEST_EXPONENT)
        # The pair of sampling without replacement at the sensitivity dominates as well, so either choice is an upper
        # bound.  The latter is used if its chi-squared divergence for rare samples is smaller.
        if 4 * math.sinh(event.contribution**2 * square) > math.expm1(square):
            return None
    return noise


def check_sampling(event: Gaussian | Laplace | CentralRelease) -> None:
    """Raise unless amplification by the event's sampling is proved for its neighbouring relation."""
    # Sampling without replacement needs "replace".  Poisson sampling needs "add_remove"; for Gaussian noise on sums any
    # relation is proved, and for Laplace noise with a `contribution` also "replace".
    pair = (event.sampling, event.neighboring)
    proved = _SAMPLING_THEOREMS
    # A unit that adds nothing to a sum has the same effect as a unit that was not drawn.  Therefore for sums "zero_out"
    # has the pair of distributions of "add_remove".  Another release may distinguish a unit without data from no unit.
    # In cohorts of fixed size, a unit that was not drawn is replaced by another unit, which may be further from it than
    # no unit is.  Under "replace" the sensitivity of a Gaussian also bounds one contribution, unless `contribution`
    # states a smaller bound (docs/explanation/accounting/poisson-replacement.md).
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
