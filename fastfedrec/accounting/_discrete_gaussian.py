"""The privacy loss of one whole number with discrete Gaussian noise."""

import math

import numpy as np

from fastfedrec.accounting._loss import CELLS, Loss, symmetric

LARGEST_STDDEV = 2.0**15  # of which a table holds all points that matter


def discrete_gaussian_loss(stddev: float, sensitivity: int, stddevs: float) -> Loss:
    """Noise around `sensitivity` against noise around 0.

    A smaller change is dominated: the best tests are thresholds, as the noise is log-concave, and at each of them the
    power grows with the change.  The pair is its own mirror image, so losses are distributed alike in both directions.
    The point x has the loss d (2 x - d) / (2 stddev^2), d the sensitivity; both laws have the same normalization.
    """
    width = math.ceil(stddevs * stddev) + 1
    scale = 2 * stddev * stddev  # 0 where not even the least float is as small
    reach = sensitivity * (sensitivity + 2 * width) / scale if scale else math.inf

    def build(step):
        own = np.arange(-width, width + 1.0)
        masses = np.exp(-own * own / scale)
        masses /= masses.sum()
        x = own + sensitivity
        twice = 2 * x - sensitivity
        losses, inside = sensitivity * twice / scale, twice > 0
        p, losses = masses[inside], losses[inside]
        q = p * np.exp(-losses)
        n_cells = math.ceil(reach / step) + 1
        cells = np.minimum((losses / step).astype(np.int64), n_cells - 1)
        sums = [np.bincount(cells, values, n_cells) for values in (p, q, -p * np.expm1(-losses))]
        # Beyond the table, on both of its sides: no more than twice the bound of a subgaussian law.
        beyond = 2 * math.exp(-width * width / scale)
        at_zero = float(masses[twice == 0].sum())
        pmf = symmetric(sums[0], sums[1], step, at_zero, (beyond, beyond), sums[2])
        return pmf, pmf

    return Loss(reach / CELLS, reach, build)
