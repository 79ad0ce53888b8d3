"""DPGram's rounds of columns: the users' sums, and what the server does with the answer; 1,000 items."""

import numpy as np

from benches.generated import thousand_items
from fastfedrec import Key
from fastfedrec.systems.claims import layered_noise
from fastfedrec.systems.gram.columns import N_COLUMNS, add_columns, next_encoder
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum
from fastfedrec.systems.projection_rounds import SubspaceState

N_ITEMS, RANK = 1_000, 320


def _factors():
    """Orthogonal columns of falling length, strongest first."""
    vectors = np.linalg.qr(np.random.default_rng(1).normal(size=(N_ITEMS, RANK)))[0]
    return vectors * np.geomspace(100.0, 1.0, RANK)


class Sums:
    """20,000 users, 93 items a user, two threads: an encoder of which a quarter or all of its columns are in use."""

    param_names = ("n_used",)
    params = ((10, N_COLUMNS),)

    def setup(self, n_used):
        self.data = thousand_items(20_000)
        encoder = next_encoder(_factors(), N_COLUMNS, 0.0)
        encoder[:, n_used:] = 0
        self.state = SubspaceState(np.full(N_ITEMS, 20, dtype=np.int32), encoder)
        self.system = CrossSum(layered_noise(2.0**40, ""), Key.from_seed(1), 0.0, 0)

    def time_sums(self, n_used):
        self.system._sums(self.state, self.data, 2)


class Correction:
    """320 factors and 40 columns."""

    def setup(self):
        self.factors = _factors()
        self.encoder = next_encoder(self.factors, N_COLUMNS, 0.0)
        self.sums = self.factors @ (self.factors.T @ self.encoder)

    def time_add_columns(self):
        add_columns(self.factors, self.sums, self.encoder, 1.0, 1.0)
