"""Amplification by shuffling of reports that hide in a blanket, by the means of positive parts of sums.

A part of every report, the blanket, does not depend on data (Balle et al. 2019).  How likely a report of
`LargestResponse` is beside the blanket, and why the pairs here dominate, is on
docs/explanation/mechanisms/channels/largest-response.md.
"""

import math
from functools import lru_cache

import numpy as np
import scipy

from fastfedrec.accounting._loss import Loss, LossPmf, pure_loss, spread
from fastfedrec.accounting._transform import fast_length
from fastfedrec.core.check import check_choice, check_epsilon, check_integer

__all__ = ["largest_response_loss"]

_STDDEVS = 9.5  # losses beyond so many standard deviations, were they normal, count as infinite
_PER_STDDEV = 8  # losses at which delta is computed, for a standard deviation; in between it is linear in e^epsilon
_MOST_LOSSES = 256
_LEVELS = 256  # of how likely a report can be
_CELLS, _MOST_CELLS = 32, 4096  # of the grid of one term of a sum, from the least likely report to the likeliest
_MOST_STDDEV = 4096  # of a sum, in cells; where there would be more, a coarser grid costs some tightness
_TAIL = 45.0  # e^-45 of a sum's mass may lie outside its window
_TILTS = 2.0 ** (np.arange(-8, 13) / 2)  # for Chernoff's bound on that, in standard deviations
_FEW = 30.0  # clones, on average: with fewer, that there is none at all is taken out
_UNHIDDEN = 300.0  # epsilon of a report from which on no crowd holds a clone
_LEAST_EPSILON = 1e-12  # that of a larger one dominates it
_MOST_USERS = 10**8  # more make longer transforms than it is worth; fewer hide less


def largest_response_loss(epsilon: float, n_candidates: int, n_users: int, neighboring: str = "replace") -> Loss:
    """The privacy loss of one shuffled report of `LargestResponse`, to be composed.

    Parameters
    ----------
    epsilon : float
        Of the report before shuffling.
    n_candidates : int
        Among which it chose.
    n_users : int
        Honest users, each with one report.
    neighboring : {"replace", "zero_out"}
        Whether the user's data are replaced by any others, or by none: then the report is uniform.

    Returns
    -------
    Loss
        Alike in both directions for "replace".
    """
    epsilon, n_candidates = check_epsilon("epsilon", epsilon), check_integer("n_candidates", n_candidates, low=1)
    n_users = min(check_integer("n_users", n_users, low=1), _MOST_USERS)
    check_choice("neighboring", neighboring, ("replace", "zero_out"))
    if epsilon > _UNHIDDEN:
        return pure_loss(epsilon)
    per_loss, reach, forward, backward = _curves(max(epsilon, _LEAST_EPSILON), n_candidates, n_users, neighboring)

    def build(step):
        pmf = _losses(forward, backward, per_loss, step)
        return pmf, pmf if forward is backward else _losses(backward, forward, per_loss, step)

    return Loss(per_loss / 8, reach, build)


@lru_cache(maxsize=16)
def _curves(epsilon, n_candidates, n_users, neighboring):
    """The step s of losses, the largest of them, and delta of one report at 0, s, 2 s, ... for (P, Q) and for (Q, P).

    Both are one object where they are alike.
    """
    ahead, behind, weights, blanket = _likelihoods(epsilon, n_candidates, neighboring)
    variance = float((weights * (ahead - behind) ** 2).sum()) / (1 + (n_users - 1) * blanket)
    furthest = float(np.abs(np.log(ahead / behind)).max())
    reach = furthest
    if (n_users - 1) * blanket > _FEW:
        reach = min(reach, variance + 2 * _STDDEVS * math.sqrt(variance))  # twice what a normal loss has
    per_loss = max(min(math.sqrt(variance), reach) / _PER_STDDEV, reach / _MOST_LOSSES)
    losses = per_loss * np.arange(math.ceil(reach / per_loss) + 1)
    forward = np.array([_delta(ahead, behind, weights, blanket, n_users, loss) for loss in losses])
    if neighboring == "replace":
        return per_loss, losses[-1], forward, forward
    backward = np.array([_delta(behind, ahead, weights, blanket, n_users, loss) for loss in losses])
    return per_loss, losses[-1], forward, backward


def _likelihoods(epsilon, n_candidates, neighboring):
    """How likely reports are with the user's data, and with the other ones, over how likely when drawn uniformly.

    Beside them the chances of these pairs when drawn so; and the blanket, which is the least likelihood.
    """
    most = 2 * n_candidates  # of a report beside the blanket
    blanket = most / (math.expm1(epsilon) + most)
    # Of a report whose sign is right: most r^(n - 1), r uniform in [0, 1], spread to a grid with its mean kept.
    grid = most * np.linspace(0, 1, _LEVELS + 1)
    chances = np.zeros(_LEVELS + 1)
    if n_candidates == 1:
        chances[-1] = 1.0
    else:
        power = 1 / (n_candidates - 1)
        below = grid * (grid / most) ** power / (power + 1)  # the integral of its distribution function
        slopes = np.diff(below) * _LEVELS / most
        chances = np.diff(np.concatenate([[0.0], slopes, [1.0]]))
    right, wrong = blanket + (1 - blanket) * grid, np.full(_LEVELS + 1, blanket)
    ahead, weights = np.append(right, wrong), np.append(chances, chances) / 2
    return ahead, np.append(wrong, right) if neighboring == "replace" else np.ones(2 * _LEVELS + 2), weights, blanket


def _delta(ahead, behind, weights, blanket, n_users, loss):
    """E[max(0, Z_1 + ... + Z_N)] / (N blanket), from above.

    Z is `ahead` - e^loss `behind` with the blanket's probability, and else 0.  Terms are spread to a grid with their
    means kept, from which a convex function can only gain.  Masses are tilted by e^(tilt Z) until the mean is 0, so
    that rounding errors are small beside the result, however small that is.
    """
    terms = ahead - math.exp(loss) * behind
    if terms.max() <= 0:
        return 0.0
    square = float((weights * terms**2).sum())
    cell = max(
        max(float(np.ptp(ahead)), float(np.ptp(behind))) / _CELLS,
        float(terms.max() - terms.min()) / _MOST_CELLS,
        math.sqrt(n_users * blanket * square) / _MOST_STDDEV,
    )
    low = np.floor(terms / cell)
    up = terms / cell - low
    first = int(low.min())
    numbers = first + np.arange(int(low.max()) + 2 - first)
    places = (low - first).astype(np.int64)
    masses = np.bincount(places, weights * (1 - up), len(numbers)) + np.bincount(places + 1, weights * up, len(numbers))
    tilt = _centring_tilt(masses, numbers)
    tilted = masses * np.exp(tilt * numbers)
    total = float(tilted.sum())
    log_scale = n_users * math.log1p(blanket * float((masses * np.expm1(tilt * numbers)).sum()))
    share = blanket * total / (1 - blanket + blanket * total)  # of terms that are not 0, when tilted
    sums, chances = _compound(tilted / total, numbers, share, n_users)
    mean = float((chances * sums * np.exp(-tilt * sums)).sum())
    return cell * mean * math.exp(log_scale) / (n_users * blanket) * (1 + 1e-12 + n_users * blanket * 2.0**-46)


def _centring_tilt(masses, numbers):
    """Where the mean of numbers whose masses are multiplied by e^(tilt number) is 0; 0 if it is not negative."""

    def mean(tilt):
        return float((masses * numbers * np.exp(tilt * numbers)).sum())

    if mean(0.0) >= 0:
        return 0.0
    low, high = 0.0, 1e-6
    while mean(high) < 0:
        low, high = high, 2 * high
    for _ in range(12):  # near is enough
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 0 else (low, middle)
    return low


def _compound(masses, numbers, share, n):
    """The positive values of a sum of n terms, and their chances.

    A term is one of the numbers with probability `share`, and else 0.
    """
    expected = n * share
    stddev = math.sqrt(expected * float((masses * numbers**2.0).sum()))
    window, tail = [], _TAIL - min(0.0, math.log(expected))
    for side, most in ((-1, -int(numbers[0])), (1, int(numbers[-1]))):
        tilts = np.concatenate([_TILTS / max(stddev, 1.0), _TILTS / max(most, 1)])
        with np.errstate(over="ignore", invalid="ignore"):
            means = (masses * np.expm1(side * tilts[:, None] * numbers)).sum(axis=1)
            bounds = (tail + n * np.log1p(share * means)) / tilts
        window.append(min(n * most, math.ceil(float(np.nanmin(bounds)))))
    below, above = max(0, window[0]), max(1, window[1])
    length = fast_length(below + above + 1)
    wrapped = np.bincount(numbers % length, masses, length)
    spectrum = scipy.fft.rfft(wrapped)
    if expected < _FEW:  # less the chance that all terms are 0, so that the least ones are not lost beside it
        powers = math.exp(n * math.log1p(-share)) * np.expm1(n * _log1p(share / (1 - share) * spectrum))
    else:
        powers, moved = np.zeros_like(spectrum), share * (spectrum - 1)
        squares = (1 + moved.real) ** 2 + moved.imag**2
        kept = np.flatnonzero(squares > math.exp(-4 * _TAIL / n))  # of the others the power is below e^(-2 _TAIL)
        powers[kept] = np.exp(n * _log1p(moved[kept]))
    chances = np.maximum(scipy.fft.irfft(powers, length)[1 : above + 1], 0.0)
    return np.arange(1, above + 1), chances


def _log1p(z):
    """NumPy's of complex numbers forgets what is small beside 1."""
    return 0.5 * np.log1p(z.real * (2 + z.real) + z.imag**2) + 1j * np.arctan2(z.imag, 1 + z.real)


def _losses(forward, backward, per_loss, step):
    """Losses of a pair whose delta is linear in e^epsilon between the given values, which dominates what has these."""
    n = len(forward) - 1
    losses = per_loss * np.arange(-n, n + 1)
    ratios = np.exp(losses)
    # Of (P, Q) at -loss, from that of (Q, P) at loss.
    curve = np.concatenate([-np.expm1(losses[:n]) + ratios[:n] * backward[:0:-1], forward])
    curve[n] = max(forward[0], backward[0])
    widths = ratios[:-1] * math.expm1(per_loss)
    # Convex, by steepening where rounding made it flatter to the left than to the right.
    slopes = np.maximum.accumulate((np.maximum(curve[:-1] - curve[1:], 0.0) / widths)[::-1])[::-1]
    first = curve[-1] + float((slopes * widths).sum())
    q = np.maximum(-np.diff(np.concatenate([[(1 - first) / ratios[0]], slopes, [0.0]])), 0.0)
    p = ratios * q
    cells = np.floor(losses / step).astype(np.int64)
    start, places = int(cells[0]), cells - cells[0]
    size = int(places[-1]) + 1
    ends = spread(np.bincount(places, p, size), np.bincount(places, q, size), start, step)
    return LossPmf(start, ends, float(curve[-1]))
