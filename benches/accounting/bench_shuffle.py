"""Epsilon of 20 rounds of 100 shuffled binary responses a user; one thread, no table kept from call to call."""

import itertools

from fastfedrec.accounting import shuffled_epsilon

# Tables are kept by the epsilon of a report, and no two calls have the same.
EPSILONS = (2.5 + 1e-12 * call for call in itertools.count())


class Rounds:
    """The number of users decides how many counts are looked at."""

    param_names = ("n_users",)
    params = ((50_000, 10_000_000),)

    def setup(self, n_users):
        epsilon = self._run(n_users)
        if abs(epsilon - {50_000: 4.180, 10_000_000: 0.2365}[n_users]) > 1e-3:
            raise AssertionError(f"epsilon {epsilon:.4f} is not what it was")

    def time_epsilon(self, n_users):
        self._run(n_users)

    def _run(self, n_users):
        return shuffled_epsilon(next(EPSILONS), n_reports=100, n_users=n_users, n_rounds=20, delta=1e-6)
