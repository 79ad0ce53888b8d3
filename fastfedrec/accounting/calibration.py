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

_PRECISION = 1e-3  # of a calibrated real number, relative
_MOST_ROUNDS = 10**9
_NOISE_RANGE = (1e-3, 1e6)
_ABSURD = 1e3  # a target epsilon that hides nobody
_STEP = 2e-5  # of the target epsilon: the step of the grid of losses
_ROUNDING = 1e-4  # of a target: how far the figures of a coarser and a finer grid may be apart
_TOLERANCE = 2.0**-40  # of a target: ten releases of 0.1 are within 1.0, though the binary number is above 1/10
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
    """The least noise that keeps a run within a target.

    Parameters
    ----------
    event : Gaussian or Laplace
        What happens in a round; its own noise multiplier does not matter.
    epsilon : float
        Target, in nats.
    delta : float
        Target, in (0, 1).
    count : int
        Rounds.
    accountant : callable
        Makes a new accountant.
    for_replacement : bool
        Whether the target is the cost of replacing all data of a user, as ledgers state it, with the event's
        `replace_sensitivity`.  Otherwise it is the cost under the event's own `neighboring`.

    Returns
    -------
    float
        Meets the target by the same accountant; at most a thousandth above the least that does.  Above epsilon 5 the
        PLD accountant's grid is coarser in the search, so that the cost is at most the target less a ten-thousandth.

    Raises
    ------
    ValueError
        No multiplier up to a million meets it.

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
    # Each seed of a study asks again; what else makes accountants may make another each time.
    least = _least_noise if accountant is PLDAccountant else _least_noise.__wrapped__
    return least(replace(event, noise_multiplier=1.0), *target)


@lru_cache(maxsize=64)
def _least_noise(event, epsilon, delta, count, accountant, for_replacement):
    meets = _target(epsilon, delta, count, accountant, is_exact=False, for_replacement=for_replacement)
    if epsilon > _ABSURD:
        # Accounts of huge costs under sampling are slow; without it the cost is higher, and has a closed form.
        alone: dict[str, Any] = {"sampling": "none", "sampling_probability": None, "n_users": None, "cohort_size": None}
        if meets(replace(event, noise_multiplier=_NOISE_RANGE[0], **alone)):
            return _NOISE_RANGE[0]
    # More noise costs less: bisect the inverse, which grows with the cost.
    least, most = 1 / _NOISE_RANGE[1], 1 / _NOISE_RANGE[0]
    return 1 / _largest("noise_multiplier", lambda x: meets(replace(event, noise_multiplier=1 / x)), least, most)


def calibrate_epsilon_per_report(
    event: LocalReports | ShuffledReports | CentralRelease,
    *,
    epsilon: float,
    delta: float,
    count: int = 1,
    accountant: Callable[[], Accountant] = PLDAccountant,
) -> float:
    """The largest epsilon of one report, or one pure release, that keeps a run within a target.

    Parameters
    ----------
    event : LocalReports, ShuffledReports or CentralRelease
        What happens in a round; its own epsilon does not matter.
    epsilon : float
        Target for the whole run, in nats.
    delta : float
        Target, in (0, 1).
    count : int
        Rounds.
    accountant : callable
        Makes a new accountant.

    Returns
    -------
    float
        Meets the target by the same accountant; at most a thousandth below the largest that does, and at most 40.

    Raises
    ------
    ValueError
        Not even an epsilon of 1e-9 meets it.

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
    """The largest number of rounds within a target.

    Parameters
    ----------
    event : event
        What happens in a round.
    epsilon : float
        Target, in nats.
    delta : float
        Target, in (0, 1).
    accountant : callable
        Makes a new accountant.
    for_replacement : bool
        As for `calibrate_noise_multiplier`.

    Returns
    -------
    int
        0 where a single round is too many; at most a thousand million.  The cost may exceed the target by 2^-40 of it:
        ten releases of epsilon 0.1 are within 1.0, although the binary number next to 0.1 is larger than 1/10.

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

    few, many = 0, 1
    while many <= _MOST_ROUNDS and allows(many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if allows(middle) else (few, middle)
    return min(few, _MOST_ROUNDS)


def calibrate_n_reports(event: ShuffledReports, *, epsilon: float, delta: float) -> int:
    """The largest number of reports of each user in one round within a target, by the PLD accountant.

    Parameters
    ----------
    event : ShuffledReports
        What happens in the round; its own number of reports does not matter.
    epsilon : float
        Target, in nats.
    delta : float
        Target, in (0, 1).

    Returns
    -------
    int
        At most a thousandth below the largest that meets it; 0 where a single report is too many; at most a thousand
        million.  The cost may exceed the target by 2^-40 of it, as in `calibrate_n_rounds`.

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
    return _most_reports(event, epsilon, delta)


@lru_cache(maxsize=64)
def _most_reports(event, epsilon, delta):
    few, many, guess = 0, None, 1
    while many is None or many - few > max(1, _PRECISION * few):
        found = PLDAccountant().compose(replace(event, n_reports=guess)).get_epsilon(delta)
        few, many = (guess, many) if found <= epsilon * (1 + _TOLERANCE) else (few, guess)
        if few >= _MOST_ROUNDS:
            break
        # The cost grows about as the square root; a step beyond the guess brackets the answer sooner.
        guess = min(int(guess * min(epsilon / found, 1e2) ** 2), _MOST_ROUNDS) if found else 2 * guess
        guess = max(guess, few + 1) if many is None else min(max(guess, few + 1), many - 1)
    return few


def _checked(epsilon, delta, count):
    return (
        check_epsilon("epsilon", epsilon),
        check_real("delta", delta, low=0.0, high=1.0, exclusive=True),
        check_integer("count", count, low=1),
    )


def _target(epsilon, delta, count, accountant, *, is_exact=True, for_replacement=False):
    """Whether an event, so many times, stays within the target; by a coarser grid where it need not be exact."""
    epsilon, delta, count = _checked(epsilon, delta, count)
    if not is_exact and accountant is PLDAccountant and (step := _STEP * epsilon) > PLDAccountant._finest:
        # Any step gives an upper bound, and a step that grows with the target takes a hundredth of the time.
        accountant = type(PLDAccountant.__name__, (PLDAccountant,), {"_finest": step})
        epsilon *= 1 - _ROUNDING

    def meets(event: Event) -> bool:
        # The public sees every release; None where no finite cost is known.
        seen = seen_event(event, "public") if for_replacement else event
        return seen is not None and accountant().compose(seen, count).get_epsilon(delta) <= epsilon

    return meets


def _largest(name, meets, low, high):
    """The largest number that meets the target, but for a thousandth, by bisection of its logarithm.

    It starts from 1 and doubles or halves, because accounting is slow where the cost is absurd.
    """
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
                    "rounds; relax them, or lower count"
                )
            bad, guess = guess, max(low, guess / factor)
    while bad / good > 1 + _PRECISION:
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if meets(middle) else (good, middle)
    return good
