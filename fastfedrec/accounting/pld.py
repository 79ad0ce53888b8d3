"""Privacy loss distributions by FFT: the sharpest accounting here, and still an upper bound."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.accounting import _loss
from fastfedrec.accounting._loss import CELLS, LossPmf
from fastfedrec.accounting._noise_loss import GAUSSIAN, MAX_NOISE, MIN_NOISE, plain_loss, sampled_masses, sampled_reach
from fastfedrec.accounting.composition import Accountant
from fastfedrec.accounting.events import Event, Gaussian, UnsupportedEventError
from fastfedrec.accounting.gaussian import gaussian_delta, gaussian_epsilon
from fastfedrec.accounting.rdp import RDPAccountant
from fastfedrec.core.check import check_instance, check_real

__all__ = ["PLDAccountant", "epsilon_lower_bound"]

# Number of standard deviations above which the Gaussian has a mass of 1e-19, which counts as infinite loss.
_TAIL_STDDEVS = 9.0
_LARGEST_STDDEVS = 37.0
# Share of delta that may be outside of the grid.
_OUTSIDE_SHARE = 1e-5
# Share of delta for rounding errors above which masses are tilted.
_ALLOWED = 1e-3
# Below this delta, an untilted window alone takes more than that share of delta.
_SURELY_TILTED = 1e-10
# Logarithm of the smallest float.
_LOG_SMALLEST = -745.0
# Above this epsilon a pure release hardly ever has a smaller loss, so the cost is the sum of the epsilons.
_LOUD = 200.0
_ROUND_UP = 1 + 1e-9
# Positions within a step, nearly in the middle of a cell, because densities are nearly uniform in it.
_POSITIONS = 0.5 - 2.0 ** -np.arange(2, 16)


class PLDAccountant(Accountant):
    """Privacy loss distributions, rounded against the claim and composed by fast Fourier transforms.

    Takes `Gaussian` without sampling (in closed form), with Poisson sampling, and with sampling of fixed size without
    replacement under "replace"; `Laplace` without or with Poisson sampling; `DiscreteGaussianRelease`;
    `ShuffledReports`; and all events with a pure epsilon.  The last count as randomized response, the worst of their
    kind, or, if they chose by exponential mechanisms, as the worst of bounded range.

    Notes
    -----
    For sampling without replacement the result is a proven upper bound, exact for one round but not for many.  For many
    rounds attacks reach about 85% of it.  If the bound of the rounding errors is not far below delta, masses are tilted
    before they are transformed, and the `RDPAccountant` is used as well.  Each result may then have a grid of its own.
    Therefore `get_delta` at an epsilon that is 1e-5 of itself above the result of `get_epsilon` is at most 1% above the
    delta of that call, down to deltas of 1e-20.  Below 1e-10 an epsilon may be several times the smallest one that the
    events have, and below 1e-20 a delta may rise with epsilon; both stay upper bounds.  See
    docs/explanation/accounting/rounding.md and docs/explanation/accounting/sampling-without-replacement.md.

    References
    ----------
    .. [1] Koskela, Jalko, Honkela, "Computing tight differential privacy guarantees using FFT", AISTATS 2020.
    .. [2] Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots: tighter discrete approximations of privacy
       loss distributions", PETS 2022.
    .. [3] Zhu, Dong, Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
    .. [4] Lebeda, Regehr, Kamath, Steinke, "Avoiding pitfalls for privacy accounting of subsampled mechanisms under
       composition", 2024.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian, PLDAccountant
    >>> step = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=4800, cohort_size=20)
    >>> round(PLDAccountant().compose(step, 1000).get_epsilon(1e-6), 3)
    0.993
    """

    # Step of the grid of losses; the search of a calibration uses a coarser one.
    _finest = _loss.FINEST

    def __init__(self) -> None:
        super().__init__()
        self._changed()

    def _cost(self, event: Event) -> Any:
        return event._loss()

    def _changed(self) -> None:
        self._total: tuple[_loss.TotalLoss, ...] | None = None
        self._renyi: RDPAccountant | None = None

    def _parts(self, stddevs):
        """Return the losses of all events, and their uses; None if no grid holds them."""
        parts, square = [], self._mu_squared()
        for event, times in self._events.items():
            cost, uses = self._costs[event]
            if uses and not isinstance(cost, Fraction):
                parts.append((cost(stddevs), times * uses))
        if square:
            # All unsampled Gaussian noise equals one release.
            parts.append((plain_loss(square, stddevs), 1))
        uses = sum(times for _, times in parts)
        furthest = max((loss.reach for loss, _ in parts), default=0.0)
        return parts if uses <= _loss.MAX_USES and furthest * uses < _loss.FURTHEST else None

    def _mu_squared(self):
        """Return the exact sum of mu^2 over all unsampled Gaussian noise."""
        costs = ((self._costs[event], times) for event, times in self._events.items())
        return sum((cost * uses * times for (cost, uses), times in costs if isinstance(cost, Fraction)), Fraction(0))

    def _is_plain(self):
        """Return whether all events are unsampled Gaussian noise, which has a closed form."""
        return all(isinstance(cost, Fraction) or not uses for cost, uses in self._costs.values())

    def _totals(self):
        """Return the untilted totals, computed once."""
        if self._total is None:
            parts = self._parts(_TAIL_STDDEVS)
            self._total = () if parts is None or not parts else _loss.compose(parts, finest=self._finest)
        return self._total

    def _tilted(self, log_delta, aim, known=()):
        """Return totals from masses tilted so that `aim` is smallest, on grids with a small share of delta outside."""
        # `known` are totals for the same delta and another aim.
        stddevs = math.sqrt(2 * max(0.0, math.log(max(1, self._uses())) - math.log(_OUTSIDE_SHARE) - log_delta))
        parts = self._parts(min(max(stddevs, _TAIL_STDDEVS), _LARGEST_STDDEVS))
        return () if parts is None else _loss.compose(parts, aim, self._finest, known)

    def _tilted_epsilon(self, delta):
        """Return the epsilon from tilted masses, or by the Renyi accountant if that is smaller."""
        # The first tilt is the best one for which Chernoff's bound is delta, and later ones are best at the last
        # epsilon.
        log_delta, best = math.log(delta), math.inf

        def aim(log_mean, tilt):
            return log_mean - tilt * best if best < math.inf else (log_mean - log_delta) / tilt

        tilted = ()
        for _ in range(5):
            tilted = self._tilted(log_delta, aim, tilted)
            epsilon = max((total.epsilon(delta) for total in tilted), default=math.inf)
            if not epsilon < best:
                break
            best = epsilon
            is_inside = all(total.first < best for total in tilted)
            if not best or (is_inside and _allowed(tilted, best) <= _ALLOWED * delta):
                break
        return min(best, self._by_renyi()._epsilon(delta))

    def _tilted_delta(self, epsilon, delta):
        """Return the delta from tilted masses, where `delta` is an upper bound of it."""
        # If the bound is far too large, the widest grids are next, and then grids that are wide enough for the result.
        log_delta = math.log(delta) if delta else _LOG_SMALLEST
        for _ in range(3):
            tilted = self._tilted(log_delta, lambda log_mean, tilt: log_mean - tilt * epsilon)
            smaller_delta = min(delta, max((total.delta(epsilon) for total in tilted), default=1.0))
            if smaller_delta > math.sqrt(_OUTSIDE_SHARE) * delta:
                break
            is_widest = log_delta == _LOG_SMALLEST
            delta, log_delta = smaller_delta, math.log(smaller_delta) if is_widest and smaller_delta else _LOG_SMALLEST
        return smaller_delta

    def _by_renyi(self):
        """Return the Renyi accountant of the same events, for losses that no grid holds and for the smallest deltas."""
        if self._renyi is None:
            self._renyi = RDPAccountant()
            for event, times in self._events.items():
                self._renyi._add(event, times)
        return self._renyi

    def _epsilon(self, delta: float) -> float:
        if self._is_plain():
            square = self._mu_squared()
            return gaussian_epsilon(square, delta) if square else 0.0
        # An infinite result here leaves the sum of the pure epsilons as the figure.
        if min(epsilon for epsilon, _ in self._pure_costs.values()) > _LOUD and not math.isinf(self._pure_total()):
            return math.inf
        epsilon = math.inf
        if delta > _SURELY_TILTED:
            epsilon = max((total.epsilon(delta) for total in self._totals()), default=math.inf)
        if epsilon and (math.isinf(epsilon) or delta * _ALLOWED < _allowed(self._totals(), epsilon)):
            epsilon = min(epsilon, self._tilted_epsilon(delta))
        if any(event._has_bounded_range() for event in self._events):
            # The pair that dominates each release of bounded range is not the tightest bound for many of them.
            epsilon = min(epsilon, self._by_renyi()._epsilon(delta))
        return epsilon * _ROUND_UP

    def _delta(self, epsilon: float) -> float:
        if self._is_plain():
            square = self._mu_squared()
            return gaussian_delta(square, epsilon) if square else 0.0
        delta = self._by_renyi()._delta(epsilon)
        is_large = delta > _SURELY_TILTED and self._totals()
        if is_large:
            delta = min(delta, max(total.delta(epsilon) for total in self._totals()))
        if not is_large or delta * _ALLOWED < _allowed(self._totals(), epsilon):
            delta = self._tilted_delta(epsilon, delta)
        return delta

    def _uses(self):
        """Return the total number of uses of all events."""
        return sum(times * self._costs[event][1] for event, times in self._events.items())


def _allowed(totals, epsilon):
    """Return the largest allowance of the totals of both directions."""
    return max(total.allowed(epsilon) for total in totals)


def epsilon_lower_bound(event: Gaussian, delta: float) -> float:
    """Compute an epsilon that `event` costs at least, by a worst case that can happen; rounded down.

    In the worst case one user's vector is as far as clipping allows from the vectors of all other users.  In the
    neighbouring data it equals theirs, or is absent.  The losses are of the mixture against the noise alone.

    Parameters
    ----------
    event : Gaussian
        Event under "replace" with sampling of fixed size, under "add_remove" or "zero_out" with Poisson sampling, or
        without sampling.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Lower bound in nats; no accountant may give less.

    Raises
    ------
    UnsupportedEventError
        The event has any other sampling.

    Notes
    -----
    Each loss within a cell of the grid is replaced by one that is at most the loss of the merged cell.  This is a
    post-processing of the release.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian, epsilon_lower_bound
    >>> steps = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=4800, cohort_size=20,
    ...                  count=1000)
    >>> round(epsilon_lower_bound(steps, 1e-6), 2)
    0.85
    """
    check_instance("event", event, Gaussian, "there is no lower bound for other events")
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    event._check_sampling()
    if (event.sampling, event.neighboring) == ("poisson", "replace"):
        raise UnsupportedEventError("no worst case is known here for Poisson sampling with neighboring='replace'")
    rate = event.sampling_rate
    if not MIN_NOISE < event.noise_multiplier < MAX_NOISE or event.count > _loss.MAX_USES:
        return 0.0
    reach = sampled_reach(GAUSSIAN, event.noise_multiplier, rate, _TAIL_STDDEVS)
    # The grid is finer than for upper bounds, because the roundings of all uses add up.
    step = max(min(_loss.FINEST / 8, reach / CELLS), reach / (_loss.LARGEST_FFT // 4))
    loss, inner = _lowered(rate, event.noise_multiplier, reach, step)
    while (widest := np.ptp(_loss.find_window([(loss, event.count)], step))) > _loss.LARGEST_FFT:
        step *= widest / _loss.LARGEST_FFT * 1.01
        loss, inner = _lowered(rate, event.noise_multiplier, reach, step)
    total = _loss.convolve([(loss, event.count)], step)
    shift = event.count * (inner - 1) * step
    error = total.allowance + total.outside_mass + total.slack
    total = _loss.TotalLoss(total.first + shift, step, total.pmf, -error)
    epsilon = total.epsilon(delta)
    return max(0.0, float(epsilon - (_ROUND_UP - 1) * (1 + epsilon)))


def _lowered(rate, noise_multiplier, reach, step):
    """Return losses that are nowhere too high, on a grid moved by `inner` - 1 steps."""
    start, p, q, _, _, above = sampled_masses(GAUSSIAN, noise_multiplier, rate, reach, step)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Position of each loss within its cell, from 0 to 1.
        offsets = (np.log(p) - np.log(q) - 1e-12) / step - start - np.arange(len(p))
    # Cells with an offset of at least `inner` move to that position, and all others a step further down.  The best
    # position has the highest mean.
    inner = max(_POSITIONS, key=lambda position: position - p[~(offsets >= position)].sum())
    inner_masses = np.where(offsets >= inner, p, 0.0)
    pmf = np.zeros(len(p) + 1)
    pmf[1:] += inner_masses
    pmf[:-1] += p - inner_masses
    pmf[-1] += above[0]
    return LossPmf(start, pmf, 0.0), inner
