"""Every mechanism of the package, with two inputs that are hard to hide from each other, for the audit command.

Each case can also be made with half of its noise, which an audit must detect.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate, count, pairwise
from typing import Any

import numpy as np

from fastfedrec import mechanisms
from fastfedrec.accounting import PLDAccountant, SkellamRelease
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.mechanisms import (
    GRR,
    OUE,
    BayesKary,
    BinaryResponse,
    Channel,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    FixedSizeSampling,
    Hybrid,
    LargestResponse,
    LayeredGaussian,
    MixtureLaplaceRR,
    OptimalKary,
    Piecewise,
    PoissonSampling,
    PublishedLaplaceRR,
    RatedOrNot,
    RoundedGaussian,
    RoundedLaplace,
    SerialLaplaceRR,
    Skellam,
    SubsetSelection,
    TruncatedGeometric,
    clip_rows_l1,
    clip_rows_l2,
)
from fastfedrec.mechanisms.channels.channel import TOTAL, exp_lower
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise

__all__ = ["CASES", "Case"]

_N_VALUES = 10
_N_GRADES = 5
_N_ENTRIES = 8
_N_CANDIDATES = 2
# Number of reports of the largest response: only a few of them reveal the largest of eight entries.
_N_LARGEST = 1_000_000
# Number of steps in the bound of a clipped row.
_GRID = 2**10
# Width of a change in steps of the grid of Gaussian noise, so that the grid has no effect.
_WIDTH = 64
# Maximum standard deviation of noise from one table.
_WIDEST = 30_000.0
# Share of the clients that take part in a round.
_SHARE = 0.25
_N_CLIENTS = 8
# Number of releases that are drawn one at a time; rare ones decide the audit.
_N_SELECTIONS = 250_000


@dataclass(frozen=True)
class Case:
    """A mechanism, two inputs, its claim, and the exact table if there is one."""

    # Argument of `audit`; a `Channel` is given by its sampler.
    mechanism: Any
    inputs: tuple[Any, Any]
    claim: float
    key: Key | None = None
    delta: float = 0.0
    measure: str = "epsilon"
    # Number of draws of the command, if the default is too small.
    n: int | None = None
    table: tuple[Channel, int, int] | None = None


@dataclass(frozen=True)
class Entry:
    """A function that makes a case from the claim, the factor by which its noise is too small, and a key."""

    # Name in `fastfedrec.mechanisms`.
    of: str
    # Description of the fault that equals half the noise.
    broken: str
    make: Callable[[float, int, Key | None], Case]
    measure: str = "epsilon"
    is_sound: bool = True


def _sampler(mechanism: Any, key: Key | None) -> Callable[[Any, int], np.ndarray]:
    """Return a function that draws outputs of the released sampler; from entropy without a key."""
    rounds = count()
    return lambda x, n: mechanism.privatize(np.full(n, x), key=resolve_key(key), round=next(rounds))


# ---- local reports -------------------------------------------------------------------------------------------------


def _table(make: Callable[[float], Channel], x0: int, x1: int, claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of two positions of a channel."""
    channel = make(claim * factor)
    return Case(_sampler(channel, key), (x0, x1), claim, table=(channel, x0, x1))


def _local(kind: type[Any], claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of a mechanism's own example, with a table if there is one."""
    options, inputs = kind._example
    mechanism = kind(claim * factor, **options)
    # The rows of a table are positions, or the two numbers.
    rows = inputs if isinstance(inputs[0], int) else (0, 1)
    if isinstance(mechanism, Channel):
        return Case(_sampler(mechanism, key), inputs, claim, table=(mechanism, *rows))
    table = None
    if isinstance(mechanism, GRR):
        table = (mechanism.channel(), *rows)
    elif isinstance(mechanism, Piecewise):
        table = (mechanism.channel(inputs), *rows)
    return Case(mechanism, inputs, claim, key, table=table)


def _plain_channel(epsilon: float) -> Channel:
    """Return a channel given by its table."""
    counts = GRR(epsilon, _N_GRADES).channel().counts
    return Channel(counts, inputs=range(_N_GRADES), outputs=range(_N_GRADES))


def _serial(epsilon: float) -> Channel:
    """Return the mechanism with two equal parts that cost the claim in total."""
    low, high = epsilon, 8 * epsilon + 8
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if SerialLaplaceRR(middle, middle, _N_GRADES).epsilon <= epsilon else (low, middle)
    return SerialLaplaceRR(low, low, _N_GRADES)


def _half_each(kind: Callable[..., Any], epsilon: float) -> Any:
    """Return a mechanism with half of epsilon for each of its parts."""
    return kind(epsilon / 2, epsilon / 2, _N_GRADES)


def _largest(claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of a vector of entries that all differ, and its negative; a report is one number."""
    mechanism, rounds = LargestResponse(claim * factor, _N_CANDIDATES), count()

    def release(x: Any, n: int) -> np.ndarray:
        rows = np.broadcast_to(np.asarray(x), (n, len(x)))
        entries, signs = mechanism.privatize(rows, key=resolve_key(key), round=next(rounds)).T
        return 2 * entries + (signs < 0)

    long = [float(value) for value in range(1, _N_ENTRIES + 1)]
    return Case(release, (long, [-value for value in long]), claim, n=_N_LARGEST)


def _published(claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of the published mechanism, which does not satisfy its claim."""
    return Case(PublishedLaplaceRR(claim * factor / 2, claim * factor / 2), (0.0, 1.0), claim, key)


# ---- noise on sums -------------------------------------------------------------------------------------------------


def _laplace(sampler: str, claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of discrete Laplace noise."""
    noise = DiscreteLaplace(1 / (Fraction(claim) * factor), sampler=sampler)
    return Case(noise, (0, 1), claim, key, noise.delta(claim))


def _gaussian(make: Callable[[Fraction], IntegerNoise], claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of Gaussian noise with a claim in mu, which needs far fewer draws than (epsilon, delta)."""
    width = max(min(_WIDTH, int(_WIDEST * claim)), 1) if make is not LayeredGaussian else math.ceil(2**17 * claim)
    stddev = Fraction(math.ceil(width / Fraction(claim) * 64), 64)  # few digits make the exact sampler fast
    return Case(make(stddev / factor), (0, width), claim, key, measure="mu")


def _skellam(claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of Skellam noise on one number, with the delta that its privacy loss has at the claim."""
    variance = Fraction(math.ceil((_WIDTH / Fraction(claim)) ** 2))
    release = SkellamRelease(float(variance), float(_WIDTH), 1, neighboring="replace", sampling="none")
    delta = PLDAccountant().compose(release).get_delta(claim)
    return Case(Skellam(variance / factor**2), (0, _WIDTH), claim, key, delta)


def _clipped(order: int, claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of a row far above the bound and of a row of zeros, on a grid with noise for the bound."""
    clip, rounds = (clip_rows_l1, clip_rows_l2)[order - 1], count()
    noise = DiscreteLaplace(_GRID / Fraction(claim)) if order == 1 else RoundedGaussian(_GRID / Fraction(claim))

    def release(x: Any, n: int) -> np.ndarray:
        row = np.trunc(clip(np.array([x], dtype=np.float64), float(factor)) * _GRID).astype(np.int64)
        return noise.privatize(np.repeat(row, n, axis=0), key=resolve_key(key), round=next(rounds))

    long = [5.0, 0.0] if order == 1 else [3.0, 4.0]  # the direction of the highest cost
    return Case(release, ([0.0, 0.0], long), claim, measure="epsilon" if order == 1 else "mu")


def _noise_for_cohorts(claim: float) -> DiscreteLaplace:
    """Return noise for one client's value of 0 or 1 if a share of the clients takes part."""
    # The claim is log(1 + share (e^epsilon - 1)), solved for epsilon.
    return DiscreteLaplace(1 / Fraction(math.log1p(math.expm1(claim) / _SHARE)))


def _poisson_cohort(claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of a noisy count of a Poisson cohort, with and without one client."""
    sampling, noise, rounds = PoissonSampling(_SHARE * factor), _noise_for_cohorts(claim), count()

    def release(x: Any, n: int) -> np.ndarray:
        round_key, number = resolve_key(key), next(rounds)
        # The i-th client is the one of the i-th release.
        values = np.zeros(n, dtype=np.int64)
        values[sampling.sample(n, key=round_key, round=number)] = x
        return noise.add_noise(values, key=round_key, purpose="audit", round=number)

    return Case(release, (0, 1), claim)


def _fixed_cohort(claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of the value of one client of eight in a noisy sum over a cohort of fixed size."""
    sampling = FixedSizeSampling(int(_N_CLIENTS * _SHARE) * factor)
    noise, rounds, cohorts = _noise_for_cohorts(claim), count(), count()

    def release(x: Any, n: int) -> np.ndarray:
        round_key = resolve_key(key)
        taken = [0 in sampling.sample(_N_CLIENTS, key=round_key, round=next(cohorts)) for _ in range(n)]
        return noise.add_noise(x * np.array(taken, dtype=np.int64), key=round_key, purpose="audit", round=next(rounds))

    return Case(release, (0, 1), claim)


def _selection(options: dict[str, Any], claim: float, factor: int, key: Key | None) -> Case:
    """Return a case of an exponential mechanism."""
    mechanism = ExponentialMechanism(claim * factor, **options)
    # Each score changes by 1.  With more items the chosen ones reveal more, and are rarer.
    k = mechanism.n_selected
    scores = [1] * k + [0] * (_N_VALUES - k), [0] * k + [1] * (_N_VALUES - k)
    table = (_selection_table(mechanism, scores), 0, 1) if k == 1 else None
    return Case(mechanism, scores, claim, key, mechanism.delta(_N_VALUES), n=_N_SELECTIONS, table=table)


def _selection_table(mechanism: ExponentialMechanism, scores: Sequence[Sequence[int]]) -> Channel:
    """Return the selection probabilities for each list of scores, rounded to multiples of 2^-64."""
    counts = []
    for row in scores:
        weights = [exp_lower(float(score / mechanism.beta)) for score in row]
        cuts = [int(TOTAL * total / sum(weights)) for total in accumulate(weights, initial=Fraction(0))]
        counts.append([high - low for low, high in pairwise(cuts)])
    return Channel(counts, inputs=range(len(scores)), outputs=range(len(scores[0])))


_DOUBLE_EPSILON = "twice the epsilon"
_HALF_SCALE = "half the scale"
_HALF_STDDEV = "half the standard deviation"
_TWO_BOUNDS = "clips at twice the bound"
_TWO_SHARES = "twice the share of clients"


def _channel(of: str, make: Callable[[float], Channel], x0: int, x1: int) -> Entry:
    """Return the entry of a finite channel."""
    return Entry(of, _DOUBLE_EPSILON, partial(_table, make, x0, x1))


def _examples(*kinds: type[Any]) -> dict[str, Entry]:
    """Return the entries of mechanisms that have an example."""
    return {_name(kind): Entry(kind.__name__, _DOUBLE_EPSILON, partial(_local, kind)) for kind in kinds}


def _name(kind: type) -> str:
    """Return the name of a class in lower case, with dashes between its words."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def _normal(of: str, make: Callable[[Fraction], IntegerNoise]) -> Entry:
    """Return the entry of Gaussian noise."""
    return Entry(of, _HALF_STDDEV, partial(_gaussian, make), "mu")


CASES: dict[str, Entry] = {
    **_examples(BinaryResponse),
    "channel": _channel("Channel", _plain_channel, 0, 1),
    **_examples(GRR, OUE, SubsetSelection, OptimalKary, BayesKary, TruncatedGeometric, RoundedLaplace),
    "serial-laplace-rr": _channel("SerialLaplaceRR", _serial, 0, 4),
    "mixture-laplace-rr": _channel("MixtureLaplaceRR", partial(_half_each, MixtureLaplaceRR), 0, 3),
    "published-laplace-rr": Entry("PublishedLaplaceRR", _DOUBLE_EPSILON, _published, is_sound=False),
    **_examples(RatedOrNot, Piecewise, Hybrid),
    "largest-response": Entry("LargestResponse", _DOUBLE_EPSILON, _largest),
    "discrete-laplace": Entry("DiscreteLaplace", _HALF_SCALE, partial(_laplace, "exact")),
    "discrete-laplace-table": Entry("DiscreteLaplace", _HALF_SCALE, partial(_laplace, "table")),
    "discrete-gaussian": _normal("DiscreteGaussian", DiscreteGaussian),
    "discrete-gaussian-table": _normal("DiscreteGaussian", partial(DiscreteGaussian, sampler="table")),
    "rounded-gaussian": _normal("RoundedGaussian", RoundedGaussian),
    "layered-gaussian": _normal("LayeredGaussian", LayeredGaussian),
    "skellam": Entry("Skellam", _HALF_STDDEV, _skellam),
    "exponential-mechanism": Entry("ExponentialMechanism", _HALF_SCALE, partial(_selection, {})),
    "exponential-mechanism-gumbel": Entry(
        "ExponentialMechanism", _HALF_SCALE, partial(_selection, {"sampler": "gumbel"})
    ),
    "exponential-mechanism-two": Entry("ExponentialMechanism", _HALF_SCALE, partial(_selection, {"n_selected": 2})),
    "poisson-sampling": Entry("PoissonSampling", _TWO_SHARES, _poisson_cohort),
    "fixed-size-sampling": Entry("FixedSizeSampling", _TWO_SHARES, _fixed_cohort),
    "clip-rows-l1": Entry("clip_rows_l1", _TWO_BOUNDS, partial(_clipped, 1)),
    "clip-rows-l2": Entry("clip_rows_l2", _TWO_BOUNDS, partial(_clipped, 2), "mu"),
}
# The order above is the one of the published table.  All other mechanisms that have an example follow.
_FOUND = [kind for kind in vars(mechanisms).values() if hasattr(kind, "_example") and _name(kind) not in CASES]
CASES |= _examples(*_FOUND)
