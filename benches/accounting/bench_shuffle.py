"""Epsilon of 20 rounds with 100 shuffled binary responses of each user; one thread, without cached tables."""

import itertools

from fastfedrec.accounting import shuffled_epsilon

# Tables are cached by the epsilon of a report, so each call has a different one.
EPSILONS = (2.5 + 1e-12 * call for call in itertools.count())


class Rounds:
    """Epsilon for two numbers of users, which determine the number of counts in the sum."""

    param_names = ("n_users",)
    params = ((50_000, 10_000_000),)

    def setup(self, n_users):
        epsilon = self._run(n_users)
        if abs(epsilon - {50_000: 4.180, 10_000_000: 0.2365}[n_users]) > 1e-3:
            raise AssertionError(f"epsilon {epsilon:.4f} differs from the recorded one")

    def time_epsilon(self, n_users):
        self._run(n_users)

    def _run(self, n_users):
        return shuffled_epsilon(next(EPSILONS), n_reports=100, n_users=n_users, n_rounds=20, delta=1e-6)
