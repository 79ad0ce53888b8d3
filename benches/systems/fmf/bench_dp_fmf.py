"""DP-FMF: users' exact sums of a round, against the same sums from NumPy, and the complete fit."""

import numpy as np

from benches.generated import thousand_items
from fastfedrec import DPFMF, Key, als
from fastfedrec.systems.factor_rounds import UNIT, FactorState
from fastfedrec.systems.fmf.dp_fmf_rounds import GradientRound

N_THREADS = 2
N_FACTORS, REGULARIZATION = 20, 1e-6


class RoundSums:
    """Clients' part of a round, against NumPy in double precision on blocks of dense rows."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data, self.key = thousand_items(20_000), Key.from_seed(1)
        self.system = GradientRound(0.1, self.data.n_items, N_FACTORS, self.key, REGULARIZATION)
        factors = self.key.normal("bench", size=self.data.n_items * N_FACTORS).reshape(-1, N_FACTORS)
        self.state = FactorState(np.zeros(self.data.n_items), factors)
        self.run = self._ours if impl == "fastfedrec" else self._numpy
        ours, theirs = self._ours() / UNIT, self._numpy()
        # Users' vectors are rounded to multiples of 2^-18, after sums in single precision.
        if np.abs(ours - theirs).max() > 1e-5 * self.data.n_users:
            raise AssertionError("the two sums differ")

    def time_round_sums(self, impl):
        self.run()

    def _ours(self):
        return self.system.local_round(self.state, self.data, self.key, 0, n_threads=N_THREADS).arrays["gradients"]

    def _numpy(self):
        factors = self.state.item_factors
        users = als.solve_users(
            self.data, factors, regularization=REGULARIZATION, confidence_weight=0.0, n_threads=N_THREADS
        )
        sums, rows = np.zeros(factors.shape), self.data.to_scipy()
        for start in range(0, len(users), 1_000):
            part = users[start : start + 1_000]
            residual = part @ factors.T - rows[start : start + 1_000].toarray()
            # A user's gradient has rank one, and its norm is the product of the two lengths.
            lengths = np.linalg.norm(residual, axis=1) * np.linalg.norm(part, axis=1)
            sums += (residual / lengths[:, None]).T @ part
        return sums


class Fit:
    """Complete fit of clients and server, with ten rounds."""

    def setup(self):
        self.data = thousand_items(20_000)

    def time_fit(self):
        DPFMF(1.0).fit(self.data, key=Key.from_seed(2), n_threads=N_THREADS)

    peakmem_fit = time_fit
