"""Lloyd's iterations on dense rows, in double, in their simplest form."""

import numpy as np


def distances(rows, centers):
    return ((rows[:, None, :].astype(float) - centers[None, :, :].astype(float)) ** 2).sum(axis=2)


def lloyd(rows, centers, n_iterations):
    centers = np.array(centers, dtype=float)
    for _ in range(n_iterations):
        labels = distances(rows, centers).argmin(axis=1)
        for c in range(len(centers)):
            if (labels == c).any():
                centers[c] = rows[labels == c].mean(axis=0)
    d = distances(rows, centers)
    return d.argmin(axis=1), centers, d.min(axis=1).sum()
