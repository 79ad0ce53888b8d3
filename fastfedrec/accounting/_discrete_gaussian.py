"""The privacy loss of one whole number with discrete Gaussian noise."""

import math

import numpy as np

from fastfedrec.accounting._loss import CELLS, Loss, symmetric

# Maximum standard deviation for which a table holds all points that matter.
LARGEST_STDDEV = 2.0**15


def discrete_gaussian_loss(stddev: float, sensitivity: int, stddevs: float) -> Loss:
    """Return the loss of noise around `sensitivity` against noise around 0."""
    # A smaller change is dominated: the noise is log-concave, so the best tests are thresholds, and the power of each
    # grows with the change.  The pair is its own mirror image, so losses have one distribution in both directions.
    width = math.ceil(stddevs * stddev) + 1
    # The scale is 0 if it is below the smallest float.
    scale = 2 * stddev * stddev
    reach = sensitivity * (sensitivity + 2 * width) / scale if scale else math.inf

    def build(step):
        noise = np.arange(-width, width + 1.0)
        masses = np.exp(-noise * noise / scale)
        masses /= masses.sum()
        # The point x has the loss d (2 x - d) / (2 stddev^2), d the sensitivity; both distributions have the same
        # normalization.
        x = noise + sensitivity
        doubled = 2 * x - sensitivity
        losses, is_positive = sensitivity * doubled / scale, doubled > 0
        p, losses = masses[is_positive], losses[is_positive]
        q = p * np.exp(-losses)
        n_cells = math.ceil(reach / step) + 1
        cells = np.minimum((losses / step).astype(np.int64), n_cells - 1)
        sums = [np.bincount(cells, values, n_cells) for values in (p, q, -p * np.expm1(-losses))]
        # The mass outside the table, on both sides, is at most twice the tail bound of a subgaussian distribution.
        outside_mass = 2 * math.exp(-width * width / scale)
        at_zero = float(masses[doubled == 0].sum())
        pmf = symmetric(sums[0], sums[1], step, at_zero, (outside_mass, outside_mass), sums[2])
        return pmf, pmf

    return Loss(reach / CELLS, reach, build)
