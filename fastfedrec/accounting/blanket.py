"""Amplification by shuffling of reports that hide in a blanket, by the means of positive parts of sums.

A part of every report, the blanket, does not depend on data (Balle et al. 2019).  The page
docs/explanation/mechanisms/channels/largest-response.md has the likelihood of a report of `LargestResponse` outside of
the blanket, and the proof that the pairs here dominate.
"""

import math
from functools import lru_cache

import numpy as np
import scipy

from fastfedrec.accounting._loss import Loss, curve_losses, pure_loss
from fastfedrec.accounting._transform import fast_length
from fastfedrec.accounting._work import count_work
from fastfedrec.core.check import check_choice, check_epsilon, check_integer

__all__ = ["largest_response_loss"]

# Losses above this number of standard deviations of a normal loss count as infinite.
_STDDEVS = 9.5
# Number of losses for a standard deviation at which delta is computed; between them it is linear in e^epsilon.
_PER_STDDEV = 8
_MAX_LOSSES = 256
# Number of levels of the likelihood of a report.
_LEVELS = 256
# Minimum and maximum number of cells of one term of a sum, from the least likely report to the likeliest.
_CELLS, _MAX_CELLS = 32, 4096
# Maximum standard deviation of a sum, in cells; above, a coarser grid costs some tightness.
_MAX_STDDEV = 4096
# At most e^-45 of a sum's mass may be outside its window.
_TAIL = 45.0
# Tilts of Chernoff's bound on that mass, in standard deviations.
_TILTS = 2.0 ** (np.arange(-8, 13) / 2)
# Below this expected number of clones, the probability that there is no clone is subtracted.
_FEW = 30.0
# Above this epsilon of a report no crowd holds a clone.
_UNHIDDEN = 300.0
# Smallest epsilon in a computation; a larger epsilon dominates a smaller one.
_MIN_EPSILON = 1e-12
# More users would make the transforms too long; fewer users hide less, which is a valid bound.
_MAX_USERS = 10**8


def largest_response_loss(epsilon: float, n_candidates: int, n_users: int, neighboring: str = "replace") -> Loss:
    """Return the privacy loss of one shuffled report of `LargestResponse`, to be composed.

    Parameters
    ----------
    epsilon : float
        Epsilon of the report before shuffling, in nats.
    n_candidates : int
        Number of candidates from which the report chose.
    n_users : int
        Number of honest users, each with one report.
    neighboring : {"replace", "zero_out"}
        Whether the user's data are replaced by any others, or by none: then the report is uniform.

    Returns
    -------
    Loss
        Loss with one distribution in both directions for "replace".
    """
    epsilon, n_candidates = check_epsilon("epsilon", epsilon), check_integer("n_candidates", n_candidates, low=1)
    n_users = min(check_integer("n_users", n_users, low=1), _MAX_USERS)
    check_choice("neighboring", neighboring, ("replace", "zero_out"))
    if epsilon > _UNHIDDEN:
        return pure_loss(epsilon)
    per_loss, reach, forward, backward = _curves(max(epsilon, _MIN_EPSILON), n_candidates, n_users, neighboring)

    def build(step):
        pmf = curve_losses(forward, backward, per_loss, step)
        return pmf, pmf if forward is backward else curve_losses(backward, forward, per_loss, step)

    return Loss(per_loss / 8, reach, build)


@lru_cache(maxsize=16)
def _curves(epsilon, n_candidates, n_users, neighboring):
    """Return the step s of losses, their maximum, and delta at 0, s, 2 s, ... for (P, Q) and for (Q, P)."""
    # Both curves are one object if they are equal.
    ahead, behind, weights, blanket = _likelihoods(epsilon, n_candidates, neighboring)
    variance = float((weights * (ahead - behind) ** 2).sum()) / (1 + (n_users - 1) * blanket)
    furthest = float(np.abs(np.log(ahead / behind)).max())
    reach = furthest
    if (n_users - 1) * blanket > _FEW:
        # Twice the mean and the standard deviations of a normal loss.
        reach = min(reach, variance + 2 * _STDDEVS * math.sqrt(variance))
    per_loss = max(min(math.sqrt(variance), reach) / _PER_STDDEV, reach / _MAX_LOSSES)
    losses = per_loss * np.arange(math.ceil(reach / per_loss) + 1)
    forward = np.array([_delta(ahead, behind, weights, blanket, n_users, loss) for loss in losses])
    if neighboring == "replace":
        return per_loss, losses[-1], forward, forward
    backward = np.array([_delta(behind, ahead, weights, blanket, n_users, loss) for loss in losses])
    return per_loss, losses[-1], forward, backward


def _likelihoods(epsilon, n_candidates, neighboring):
    """Return likelihoods of reports over uniform ones, with either data of the user, weights and the blanket."""
    # A report outside of the blanket is at most this number of times as likely as a uniform report.
    max_ratio = 2 * n_candidates
    # The blanket is the smallest likelihood.
    blanket = max_ratio / (math.expm1(epsilon) + max_ratio)
    # A report with the right sign has the likelihood max_ratio r^(n - 1), r uniform in [0, 1].  It is spread to a grid
    # that keeps its mean.
    grid = max_ratio * np.linspace(0, 1, _LEVELS + 1)
    chances = np.zeros(_LEVELS + 1)
    if n_candidates == 1:
        chances[-1] = 1.0
    else:
        power = 1 / (n_candidates - 1)
        # The integral of the distribution function.
        below = grid * (grid / max_ratio) ** power / (power + 1)
        slopes = np.diff(below) * _LEVELS / max_ratio
        chances = np.diff(np.concatenate([[0.0], slopes, [1.0]]))
    right, wrong = blanket + (1 - blanket) * grid, np.full(_LEVELS + 1, blanket)
    # The weights are the probabilities of these pairs for uniform reports.
    ahead, weights = np.append(right, wrong), np.append(chances, chances) / 2
    return ahead, np.append(wrong, right) if neighboring == "replace" else np.ones(2 * _LEVELS + 2), weights, blanket


def _delta(ahead, behind, weights, blanket, n_users, loss):
    """Return an upper bound of E[max(0, Z_1 + ... + Z_N)] / (N blanket)."""
    # Z is `ahead` - e^loss `behind` with the blanket's probability, and 0 otherwise.  Terms are spread to a grid that
    # keeps their means, which can only raise the mean of a convex function.  Masses are tilted by e^(tilt Z) until the
    # mean is 0.  Therefore rounding errors are small relative to the result, also for a tiny result.
    terms = ahead - math.exp(loss) * behind
    if terms.max() <= 0:
        return 0.0
    square = float((weights * terms**2).sum())
    cell = max(
        max(float(np.ptp(ahead)), float(np.ptp(behind))) / _CELLS,
        float(terms.max() - terms.min()) / _MAX_CELLS,
        math.sqrt(n_users * blanket * square) / _MAX_STDDEV,
    )
    low = np.floor(terms / cell)
    up = terms / cell - low
    first = int(low.min())
    numbers = first + np.arange(int(low.max()) + 2 - first)
    positions = (low - first).astype(np.int64)
    masses = np.bincount(positions, weights * (1 - up), len(numbers)) + np.bincount(
        positions + 1, weights * up, len(numbers)
    )
    tilt = _centring_tilt(masses, numbers)
    tilted = masses * np.exp(tilt * numbers)
    total = float(tilted.sum())
    log_scale = n_users * math.log1p(blanket * float((masses * np.expm1(tilt * numbers)).sum()))
    # Tilted probability that a term is not 0.
    share = blanket * total / (1 - blanket + blanket * total)
    sums, chances = _compound(tilted / total, numbers, share, n_users)
    mean = float((chances * sums * np.exp(-tilt * sums)).sum())
    return cell * mean * math.exp(log_scale) / (n_users * blanket) * (1 + 1e-12 + n_users * blanket * 2.0**-46)


def _centring_tilt(masses, numbers):
    """Return the tilt at which numbers of masses times e^(tilt number) have mean 0; 0 for a mean from 0 on."""

    def mean(tilt):
        return float((masses * numbers * np.exp(tilt * numbers)).sum())

    if mean(0.0) >= 0:
        return 0.0
    low, high = 0.0, 1e-6
    while mean(high) < 0:
        low, high = high, 2 * high
    # An approximate root is enough.
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < 0 else (low, middle)
    return low


def _compound(masses, numbers, share, n):
    """Return the positive values of a sum of n terms, and their probabilities."""
    # A term is one of the numbers with probability `share`, and 0 otherwise.
    expected = n * share
    stddev = math.sqrt(expected * float((masses * numbers**2.0).sum()))
    window, tail = [], _TAIL - min(0.0, math.log(expected))
    for side, max_number in ((-1, -int(numbers[0])), (1, int(numbers[-1]))):
        # Chernoff's bound holds for every tilt, and the smallest bound is the end of the window.
        tilts = np.concatenate([_TILTS / max(stddev, 1.0), _TILTS / max(max_number, 1)])
        with np.errstate(over="ignore", invalid="ignore"):
            means = (masses * np.expm1(side * tilts[:, None] * numbers)).sum(axis=1)
            bounds = (tail + n * np.log1p(share * means)) / tilts
        window.append(min(n * max_number, math.ceil(float(np.nanmin(bounds)))))
    below, above = max(0, window[0]), max(1, window[1])
    length = fast_length(below + above + 1)
    count_work(length)
    wrapped = np.bincount(numbers % length, masses, length)
    spectrum = scipy.fft.rfft(wrapped)
    # With few terms the probability that all are 0 is subtracted, so that the small masses keep their digits.
    if expected < _FEW:
        powers = math.exp(n * math.log1p(-share)) * np.expm1(n * _log1p(share / (1 - share) * spectrum))
    else:
        powers, moved = np.zeros_like(spectrum), share * (spectrum - 1)
        squares = (1 + moved.real) ** 2 + moved.imag**2
        # At all other frequencies the power is below e^(-2 _TAIL).
        frequencies = np.flatnonzero(squares > math.exp(-4 * _TAIL / n))
        powers[frequencies] = np.exp(n * _log1p(moved[frequencies]))
    chances = np.maximum(scipy.fft.irfft(powers, length)[1 : above + 1], 0.0)
    return np.arange(1, above + 1), chances


def _log1p(z):
    """Return log(1 + z) of complex z; NumPy's function loses terms that are small relative to 1."""
    return 0.5 * np.log1p(z.real * (2 + z.real) + z.imag**2) + 1j * np.arctan2(z.imag, 1 + z.real)
