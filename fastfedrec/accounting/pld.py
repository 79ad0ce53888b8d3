"""Privacy loss distributions by FFT: the sharpest accounting here, and still an upper bound."""

import math

import numpy as np
import scipy

from fastfedrec._check import check_instance, check_real
from fastfedrec.accounting import _loss
from fastfedrec.accounting._loss import Loss, LossPmf, both_ways, symmetric
from fastfedrec.accounting.composition import Accountant, check_sampling, pure_cost
from fastfedrec.accounting.events import Gaussian, Laplace, ShuffledReports
from fastfedrec.accounting.shuffle import shuffled_loss, zero_out_loss

_TAIL_STDDEVS = 9.0  # beyond, the Gaussian has a mass of 1e-19, which counts as infinite loss
_CELLS = 4096  # at least so many cells for one loss
_ROUND_UP = 1e-9
_PLACES = 0.5 - 2.0 ** -np.arange(2, 16)  # of a step: nearly the middle of a cell, as densities are nearly even in it


class PLDAccountant(Accountant):
    """Privacy loss distributions, rounded against the claim and composed by fast Fourier transforms.

    Takes `Gaussian` without sampling, with Poisson sampling under "add_remove" and "zero_out", and with sampling of
    fixed size without replacement under "replace"; `Laplace` without or with Poisson sampling; `ShuffledReports`; and
    everything with a pure epsilon, which counts as randomized response, the worst of its kind.

    Notes
    -----
    For sampling without replacement the answer is a proven upper bound, exact for one round but not for many, where
    attacks reach about 85% of it.  Every delta includes 1e-10 (more beyond a million uses) for rounding errors of
    the transforms, so a smaller one has an infinite epsilon; use `RDPAccountant` there.  See
    docs/explanation/accounting.md and docs/explanation/privacy/sampling-without-replacement.md.

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

    _total = None

    def _cost(self, event):
        if isinstance(event, ShuffledReports) and event.neighboring == "zero_out":
            uses = min(1, event.n_reports)  # all reports together are one
            loss = zero_out_loss(event.epsilon, max(1, event.n_reports), event.n_honest_users)
            return loss, event.epsilon * event.n_reports, uses
        if isinstance(event, ShuffledReports):
            return shuffled_loss(event.epsilon, event.n_honest_users), *pure_cost(event)
        if isinstance(event, Gaussian) or (isinstance(event, Laplace) and event.sampling != "without_replacement"):
            check_sampling(event)
            base = _gaussian_masses if isinstance(event, Gaussian) else _laplace_masses
            loss = _poisson_loss(base, event) if event.sampling == "poisson" else _symmetric_loss(base, event)
            return loss, *((math.inf, event.count) if isinstance(event, Gaussian) else pure_cost(event))
        epsilon, uses = pure_cost(event)
        return _pure_loss(epsilon), epsilon, uses

    def _changed(self):
        self._total = None

    def _totals(self):
        if self._total is None:
            costs = ((self._costs[event], times) for event, times in self._events.items())
            parts = [(loss, pure, times * uses) for (loss, pure, uses), times in costs if uses]
            self._pure = sum(pure * times for _, pure, times in parts)
            self._total = _loss.compose([(loss, times) for loss, _, times in parts]) if parts else ()
        return self._total

    def _epsilon(self, delta):
        epsilon = max((total.epsilon(delta) for total in self._totals()), default=0.0)
        # The grid rounds a pure epsilon up; the sum of them holds as well.
        return min(self._pure, epsilon + _ROUND_UP * (1 + epsilon)) if epsilon else 0.0

    def _delta(self, epsilon):
        totals = self._totals()
        return 0.0 if epsilon >= self._pure else max(total.delta(epsilon) for total in totals)


def epsilon_lower_bound(event: Gaussian, delta: float) -> float:
    """An epsilon that `event` really costs at least, by a worst case that can happen; rounded down.

    In the worst case one user's vector lies as far as clipping allows from those of all the others, and in the
    neighbouring data it is like theirs, or gone: then the losses are those of the mixture against the noise alone.

    Parameters
    ----------
    event : Gaussian
        Under "replace" with sampling of fixed size, under "add_remove" or "zero_out" with Poisson sampling, or without
        sampling.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        No accountant may give less.

    Raises
    ------
    UnsupportedEventError
        Any other sampling.

    Notes
    -----
    Each loss within a cell of the grid is replaced by one that is not above the loss of the merged cell, which is a
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
    check_sampling(event)
    rate = event.sampling_rate
    reach = _reach(rate, (1 + 2 * _TAIL_STDDEVS * event.noise_multiplier) / (2 * event.noise_multiplier**2))
    # Finer than for upper bounds, as roundings add up.
    step = max(min(_loss.FINEST / 8, reach / _CELLS), reach / (_loss.LARGEST_FFT // 4))
    loss, inner = _lowered(rate, event.noise_multiplier, reach, step)
    while (widest := np.ptp(_loss.find_window([(loss, event.count)], step))) > _loss.LARGEST_FFT:
        step *= widest / _loss.LARGEST_FFT * 1.01
        loss, inner = _lowered(rate, event.noise_multiplier, reach, step)
    total = _loss.convolve([(loss, event.count)], step)
    shift = event.count * (inner - 1) * step
    total = _loss.TotalLoss(total.first + shift, step, total.pmf, -total.allowance)
    epsilon = total.epsilon(delta)
    return max(0.0, float(epsilon - _ROUND_UP * (1 + epsilon)))


def _lowered(rate, noise_multiplier, reach, step):
    """Losses that are nowhere too high, on a grid moved by `inner` - 1 steps."""
    start, p, q, _, above = _sampled_masses(_gaussian_masses, noise_multiplier, rate, reach, step)
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (np.log(p) - np.log(q) - 1e-12) / step - start - np.arange(len(p))  # within its cell, from 0 to 1
    # One place for all cells that are not below it; the others move a step down.  The best keeps the mean highest.
    inner = max(_PLACES, key=lambda place_: place_ - p[~(place >= place_)].sum())
    kept = np.where(place >= inner, p, 0.0)
    pmf = np.zeros(len(p) + 1)
    pmf[1:] += kept
    pmf[:-1] += p - kept
    pmf[-1] += above[0]
    return LossPmf(start, pmf, 0.0), inner


def _reach(rate, loss):
    """Log(1 + rate (e^loss - 1)), a loss after sampling, without overflow."""
    return loss + math.log(rate + (1 - rate) * math.exp(-loss)) if loss > 1 else math.log1p(rate * math.expm1(loss))


def _sampled_masses(base, noise_multiplier, rate, reach, step):
    """P- and Q-masses in the cells of the grid, and outside: P = (1 - rate) Q + rate P0, for the pair (P0, Q)."""
    low = -reach if rate == 1 else max(math.log1p(-rate), -reach)
    start, stop = math.floor(low / step) - 1, math.ceil(reach / step) + 1
    edges = step * np.arange(start, stop + 1)
    p, q = base(_unsampled(edges, rate), noise_multiplier)
    p = (1 - rate) * q + rate * p
    return start, p[1:-1], q[1:-1], (p[0], q[0]), (p[-1], q[-1])


def _unsampled(losses, rate):
    """Losses of the pair (P0, Q) where those of the sampled pair are `losses`; minus infinity below log(1 - rate)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        small = np.log1p(np.maximum(np.expm1(losses) / rate, -1.0))
        return np.where(losses > 30, losses - math.log(rate) + np.log1p((rate - 1) * np.exp(-losses)), small)


def _poisson_loss(base, event):
    """Losses of the mixture against the rest: a user is removed; and the other way round: added."""
    rate = event.sampling_rate
    reach = _reach(rate, _base_reach(base, event.noise_multiplier))

    def build(step):
        start, p, q, below, above = _sampled_masses(base, event.noise_multiplier, rate, reach, step)
        return both_ways(p, q, start, step, below, above)

    return Loss(reach / _CELLS, reach, build)


def _symmetric_loss(base, event):
    """Losses above 0 as those of the mixture against the rest, losses below 0 as those of the rest against it."""
    rate = event.sampling_rate
    reach = _reach(rate, _base_reach(base, event.noise_multiplier))

    def build(step):
        edges = step * np.arange(math.ceil(reach / step) + 2)
        p, q = base(_unsampled(edges, rate), event.noise_multiplier)
        p = (1 - rate) * q + rate * p
        pmf = symmetric(p[1:-1], q[1:-1], step, 1 - p[1:].sum() - q[1:].sum(), (p[-1], q[-1]))
        return pmf, pmf

    return Loss(reach / _CELLS, reach, build)


def _pure_loss(epsilon):
    """Losses of binary randomized response, which dominates whatever has this pure epsilon."""

    def build(step):
        n = math.ceil(epsilon / step) + 1
        p, q = np.zeros(n), np.zeros(n)
        cell = min(math.floor(epsilon / step), n - 1)
        p[cell], q[cell] = 1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))
        pmf = symmetric(p, q, step, 0.0, (0.0, 0.0))
        return pmf, pmf

    return Loss(epsilon / _CELLS, epsilon, build)


def _base_reach(base, noise_multiplier):
    if base is _laplace_masses:
        return 1 / noise_multiplier
    return (1 + 2 * _TAIL_STDDEVS * noise_multiplier) / (2 * noise_multiplier**2)


def _gaussian_masses(losses, noise_multiplier):
    """Masses of N(1, z^2) and N(0, z^2) below, between and above increasing losses of the first against the second."""
    with np.errstate(over="ignore"):
        x = noise_multiplier**2 * losses + 0.5
    return _normal((x - 1) / noise_multiplier), _normal(x / noise_multiplier)


def _normal(edges):
    below, above = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    # On each side differences of the smaller tails, which do not cancel.
    inner = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([below[:1], np.maximum(inner, 0.0), above[-1:]])


def _laplace_masses(losses, noise_multiplier):
    """Masses of Laplace noise around 0 and around 1, in the same way; half of the first has the largest loss."""
    epsilon = 1 / noise_multiplier
    clipped = np.clip(losses, -epsilon, epsilon)
    top = losses >= epsilon * (1 - 1e-15)
    bottom = losses < -epsilon
    p = np.where(top, 1.0, np.where(bottom, 0.0, np.exp((clipped - epsilon) / 2) / 2))
    q = np.where(top, 1.0, np.where(bottom, 0.0, 1 - np.exp(-(clipped + epsilon) / 2) / 2))
    return tuple(np.concatenate([c[:1], np.maximum(np.diff(c), 0.0), [1 - c[-1]]]) for c in (p, q))
