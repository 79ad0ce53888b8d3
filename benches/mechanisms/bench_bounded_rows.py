"""Projection of 6,040 users' rows to 4 dimensions and into a ball, against SciPy's product; one thread."""

import math

import numpy as np

from benches.floors import floor_seconds
from benches.ratios import with_ratios
from fastfedrec import Key, hardware
from fastfedrec.datasets import generate_implicit
from fastfedrec.mechanisms.bounded_rows import limit_contributions, project_rows

N_USERS, N_ITEMS, N_DIMENSIONS, MAX_ENTRIES = 6_040, 3_706, 4, 50


def _floor(case):
    # Each entry is read once, with a product and a sum for each dimension.
    n = case.data.n_interactions
    return floor_seconds(hardware.instruction_sets()[-1], flops=2 * n * N_DIMENSIONS, bytes_read=12 * n)


@with_ratios("time_project", floor=_floor)
class Project:
    param_names = ("impl",)
    params = (("fastfedrec", "scipy"),)

    def setup(self, impl):
        self.key, self.radius = Key.from_seed(1), math.sqrt(MAX_ENTRIES)
        self.data = generate_implicit(N_USERS, N_ITEMS, key=self.key)
        self.run = getattr(self, f"_{impl}")
        np.testing.assert_allclose(self.run(), self._fastfedrec(), atol=1e-9)

    def time_project(self, _):
        self.run()

    def _fastfedrec(self):
        return project_rows(self.data, N_DIMENSIONS, self.radius, key=self.key, n_threads=1)

    def _scipy(self):
        draws = self.key.normal("projection.directions", round=0, size=N_ITEMS * N_DIMENSIONS)
        points = self.data.to_scipy() @ (draws.reshape(N_ITEMS, N_DIMENSIONS) / math.sqrt(N_DIMENSIONS))
        return points * np.minimum(1, self.radius / np.linalg.norm(points, axis=1))[:, None]


class KeepEntries:
    def setup(self):
        self.key = Key.from_seed(1)
        self.data = generate_implicit(N_USERS, N_ITEMS, key=self.key)

    def time_keep(self):
        limit_contributions(self.data, MAX_ENTRIES, value_range=(0.0, 1.0), key=self.key)
