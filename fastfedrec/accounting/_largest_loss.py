"""The privacy loss of a release that is one of several, where an earlier release may choose which one."""

import math
from collections.abc import Sequence

import numpy as np

from fastfedrec.accounting._loss import Loss, compose, curve_losses

# Number of losses in a standard deviation of the narrowest release, and maximum number of losses.
_PER_STDDEV, _MAX_LOSSES = 8, 512


def largest_loss(alternatives: Sequence[tuple[Loss, int]]) -> Loss:
    """Return the loss of a pair with at least the deltas of each alternative, a loss with its number of uses.

    A pair with this loss dominates each alternative, so it takes the place of the chosen one in any composition.
    """
    totals = [compose([alternative]) for alternative in alternatives]
    reach = max(total.first + total.step * len(total.pmf) for pair in totals for total in pair)
    stddev = min(_stddev(total) for pair in totals for total in pair)
    per_loss = max(min(stddev, reach) / _PER_STDDEV, reach / _MAX_LOSSES)
    losses = per_loss * np.arange(math.ceil(reach / per_loss) + 1)
    curves = [np.max([pair[way].deltas(losses) for pair in totals], axis=0) for way in (0, -1)]
    is_symmetric = all(len(pair) == 1 for pair in totals)

    def build(step):
        pmf = curve_losses(curves[0], curves[1], per_loss, step)
        return pmf, pmf if is_symmetric else curve_losses(curves[1], curves[0], per_loss, step)

    return Loss(per_loss / 8, float(losses[-1]), build)


def _stddev(total):
    """Return the standard deviation of the finite losses of a total; 0 if all are infinite."""
    losses = total.first + total.step * np.arange(len(total.pmf))
    mass = float(total.pmf.sum())
    if not mass:
        return 0.0
    mean = float((total.pmf * losses).sum()) / mass
    return math.sqrt(float((total.pmf * (losses - mean) ** 2).sum()) / mass)
