"""Calibration: the parameter that meets a target (epsilon, delta), rounded toward privacy."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fastfedrec.accounting.composition import Accountant
from fastfedrec.accounting.events import CentralRelease, Event, Gaussian, Laplace, LocalReports, ShuffledReports
from fastfedrec.accounting.pld import PLDAccountant
from fastfedrec.accounting.views import seen_event
from fastfedrec.core.check import check_epsilon, check_flag, check_instance, check_integer, check_real

__all__ = ["calibrate_epsilon_per_report", "calibrate_n_reports", "calibrate_n_rounds", "calibrate_noise_multiplier"]

# Relative precision of a calibrated real number.
_PRECISION = 1e-3
_MAX_ROUNDS = 10**9
# Smallest and largest noise multiplier of a search.
_NOISE_RANGE = (1e-3, 1e6)
# A target epsilon above this hides no user.
_ABSURD = 1e3
# Step of the grid of losses, as a share of the target epsilon.
_STEP = 2e-5
# Relative difference that the figures of a coarser and a finer grid may have.
_ROUNDING = 1e-4
# Relative tolerance of a target: ten releases of 0.1 are within 1.0, though the binary number is above 1/10.
_TOLERANCE = 2.0**-40
# Smallest and largest epsilon of one report in a search, in nats.
_EPSILON_RANGE = (1e-9, 40.0)


def calibrate_noise_multiplier(
    event: Gaussian | Laplace,
    *,
    epsilon: float,
    delta: float,
    count: int = 1,
    accountant: Callable[[], Accountant] = PLDAccountant,
    for_replacement: bool = False,
) -> float:
    """Return the smallest noise multiplier that keeps a run within a target.

    Parameters
    ----------
    event : Gaussian or Laplace
        The event of one round; its own noise multiplier has no effect.
    epsilon : float
        Target epsilon, in nats.
    delta : float
        Target delta, in (0, 1).
    count : int
        Number of rounds.
    accountant : callable
        Factory of a new accountant.
    for_replacement : bool
        Whether the target is the cost of replacing all data of a user, which ledgers state, with the event's
        `replace_sensitivity`.  Otherwise it is the cost under the event's own `neighboring`.

    Returns
    -------
    float
        A multiplier that meets the target by the same accountant, at most a thousandth above the smallest one that
        does.  Above epsilon 5 the PLD accountant's grid is coarser in the search, so the cost is at most the target
        less a ten-thousandth.

    Raises
    ------
    ValueError
        No multiplier up to a million meets the target.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian, calibrate_noise_multiplier
    >>> step = Gaussian(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.01)
    >>> round(calibrate_noise_multiplier(step, epsilon=1.0, delta=1e-6, count=1000), 2)
    1.56
    """
    if not isinstance(event, Gaussian | Laplace):
        raise TypeError(f"event must be Gaussian or Laplace, got {type(event).__name__}; pass the event of one round")
    target = (*_checked(epsilon, delta, count), accountant, check_flag("for_replacement", for_replacement))
    # Each seed of a study repeats the same search, so it is cached.  Other factories may differ in each call.
    find_noise = _find_noise if accountant is PLDAccountant else _find_noise.__wrapped__
    return find_noise(replace(event, noise_multiplier=1.0), *target)


@lru_cache(maxsize=64)
def _find_noise(event, epsilon, delta, count, accountant, for_replacement):
    """Return the smallest noise multiplier that meets the target."""
    meets = _target(epsilon, delta, count, accountant, is_exact=False, for_replacement=for_replacement)
    if epsilon > _ABSURD:
        # Accounts of huge costs under sampling are slow; without it the cost is higher, and has a closed form.
        unsampled: dict[str, Any] = {
            "sampling": "none",
            "sampling_probability": None,
            "n_users": None,
            "cohort_size": None,
        }
        if meets(replace(event, noise_multiplier=_NOISE_RANGE[0], **unsampled)):
            return _NOISE_RANGE[0]
    # More noise costs less: bisect the inverse, which grows with the cost.
    low, high = 1 / _NOISE_RANGE[1], 1 / _NOISE_RANGE[0]
    return 1 / _largest("noise_multiplier", lambda x: meets(replace(event, noise_multiplier=1 / x)), low, high)


def calibrate_epsilon_per_report(
    event: LocalReports | ShuffledReports | CentralRelease,
    *,
    epsilon: float,
    delta: float,
    count: int = 1,
    accountant: Callable[[], Accountant] = PLDAccountant,
) -> float:
    """Return the largest epsilon of one report, or one pure release, that keeps a run within a target.

    Parameters
    ----------
    event : LocalReports, ShuffledReports or CentralRelease
        The event of one round; its own epsilon has no effect.
    epsilon : float
        Target epsilon of the whole run, in nats.
    delta : float
        Target delta, in (0, 1).
    count : int
        Number of rounds.
    accountant : callable
        Factory of a new accountant.

    Returns
    -------
    float
        An epsilon that meets the target by the same accountant, at most a thousandth below the largest one that does,
        and at most 40.

    Raises
    ------
    ValueError
        Not even an epsilon of 1e-9 meets the target.

    Examples
    --------
    >>> from fastfedrec.accounting import ShuffledReports, calibrate_epsilon_per_report
    >>> reports = ShuffledReports("binary response", epsilon=1.0, n_reports=100, n_users=50_000)
    >>> round(calibrate_epsilon_per_report(reports, epsilon=1.0, delta=1e-6, count=20), 2)
    0.95
    """
    if not isinstance(event, LocalReports | ShuffledReports | CentralRelease):
        kinds = "LocalReports, ShuffledReports or CentralRelease"
        raise TypeError(f"event must be {kinds}, got {type(event).__name__}; pass the event of one round")
    meets = _target(epsilon, delta, count, accountant, is_exact=False)
    return _largest("epsilon per report", lambda x: meets(replace(event, epsilon=x)), *_EPSILON_RANGE)


def calibrate_n_rounds(
    event: Event,
    *,
    epsilon: float,
    delta: float,
    accountant: Callable[[], Accountant] = PLDAccountant,
    for_replacement: bool = False,
) -> int:
    """Return the largest number of rounds within a target.

    Parameters
    ----------
    event : event
        The event of one round.
    epsilon : float
        Target epsilon, in nats.
    delta : float
        Target delta, in (0, 1).
    accountant : callable
        Factory of a new accountant.
    for_replacement : bool
        The same option as in `calibrate_noise_multiplier`.

    Returns
    -------
    int
        Number of rounds, from 0 (a single round exceeds the target) to a thousand million.  The cost may exceed the
        target by 2^-40 of it: ten releases of epsilon 0.1 are within 1.0, although the binary number next to 0.1 is
        larger than 1/10.

    Examples
    --------
    >>> from fastfedrec.accounting import CentralRelease, PureAccountant, ShuffledReports, calibrate_n_rounds
    >>> reports = ShuffledReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000)
    >>> calibrate_n_rounds(reports, epsilon=4.18, delta=1e-6)
    20
    >>> calibrate_n_rounds(CentralRelease("choice", 0.1), epsilon=1.0, delta=1e-6, accountant=PureAccountant)
    10
    """
    epsilon = min(check_epsilon("epsilon", epsilon) * (1 + _TOLERANCE), sys.float_info.max)
    for_replacement = check_flag("for_replacement", for_replacement)

    def allows(n_rounds: int) -> bool:
        return _target(epsilon, delta, n_rounds, accountant, for_replacement=for_replacement)(event)

    allowed, refused = 0, 1
    # Doubling brackets the answer, and bisection finds it: the cost grows with the number of rounds.
    while refused <= _MAX_ROUNDS and allows(refused):
        allowed, refused = refused, 2 * refused
    while refused - allowed > 1:
        middle = (allowed + refused) // 2
        allowed, refused = (middle, refused) if allows(middle) else (allowed, middle)
    return min(allowed, _MAX_ROUNDS)


def calibrate_n_reports(event: ShuffledReports, *, epsilon: float, delta: float) -> int:
    """Return the largest number of reports of each user in one round within a target, by the PLD accountant.

    Parameters
    ----------
    event : ShuffledReports
        The event of the round; its own number of reports has no effect.
    epsilon : float
        Target epsilon, in nats.
    delta : float
        Target delta, in (0, 1).

    Returns
    -------
    int
        Number of reports, at most a thousandth below the largest one that meets the target, from 0 (a single report
        exceeds the target) to a thousand million.  The cost may exceed the target by 2^-40 of it, as in
        `calibrate_n_rounds`.

    Examples
    --------
    >>> from fastfedrec.accounting import ShuffledReports, calibrate_n_reports
    >>> reports = ShuffledReports("binary response", 2.5, 1, 50_000, neighboring="zero_out")
    >>> calibrate_n_reports(reports, epsilon=1.0, delta=1e-6)
    589
    """
    check_instance("event", event, ShuffledReports, "pass the event of one round")
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    return _find_n_reports(event, epsilon, delta)


@lru_cache(maxsize=64)
def _find_n_reports(event, epsilon, delta):
    """Return the largest number of reports within a target, but for a thousandth."""
    allowed, refused, guess = 0, None, 1
    while refused is None or refused - allowed > max(1, _PRECISION * allowed):
        cost = PLDAccountant().compose(replace(event, n_reports=guess)).get_epsilon(delta)
        allowed, refused = (guess, refused) if cost <= epsilon * (1 + _TOLERANCE) else (allowed, guess)
        if allowed >= _MAX_ROUNDS:
            break
        # The cost grows about as the square root; a step beyond the guess brackets the answer sooner.
        guess = min(int(guess * min(epsilon / cost, 1e2) ** 2), _MAX_ROUNDS) if cost else 2 * guess
        guess = max(guess, allowed + 1) if refused is None else min(max(guess, allowed + 1), refused - 1)
    return allowed


def _checked(epsilon, delta, count):
    """Return the checked epsilon, delta and count."""
    return (
        check_epsilon("epsilon", epsilon),
        check_real("delta", delta, low=0.0, high=1.0, exclusive=True),
        check_integer("count", count, low=1),
    )


def _target(epsilon, delta, count, accountant, *, is_exact=True, for_replacement=False):
    """Return a function that tests whether an event, `count` times, costs at most the target."""
    epsilon, delta, count = _checked(epsilon, delta, count)
    if not is_exact and accountant is PLDAccountant and (step := _STEP * epsilon) > PLDAccountant._finest:
        # Any step of the grid gives an upper bound.  A step that grows with the target takes a hundredth of the time.
        accountant = type(PLDAccountant.__name__, (PLDAccountant,), {"_finest": step})
        epsilon *= 1 - _ROUNDING

    def meets(event: Event) -> bool:
        # The public sees every release.  The event is None if no finite cost is known.
        seen = seen_event(event, "public") if for_replacement else event
        return seen is not None and accountant().compose(seen, count).get_epsilon(delta) <= epsilon

    return meets


def _largest(name, meets, low, high):
    """Return the largest number that meets the target, but for a thousandth, by bisection of its logarithm."""
    # The search starts from 1 and doubles or halves, because accounting is slow at absurd costs.
    good, bad = None, None
    guess, factor = 1.0, 2.0
    while good is None or bad is None:
        if meets(guess):
            if guess >= high:
                return high
            good, guess = guess, min(high, guess * factor)
        else:
            if guess <= low:
                raise ValueError(
                    f"no {name} in the range of this search meets the target epsilon and delta with that count of "
                    "rounds; relax the target, or lower count"
                )
            bad, guess = guess, max(low, guess / factor)
    while bad / good > 1 + _PRECISION:
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return good
