"""Data that kill the process which draws them under seed 1, for tests of the other runs."""

import os
from dataclasses import dataclass

from fastfedrec import Key
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut


@dataclass(frozen=True)
class DyingData:
    n_users: int = 200
    n_items: int = 40
    row_length: float | None = None

    def draw(self, key, n_threads):
        if key.uniform("dying", size=1) == Key.from_seed(1).uniform("dying", size=1):
            os._exit(1)
        return generate_implicit(self.n_users, self.n_items, key=key, n_threads=n_threads)

    def split(self, key, n_threads):
        return next(LeaveOneOut().split(self.draw(key, n_threads), key=key))
