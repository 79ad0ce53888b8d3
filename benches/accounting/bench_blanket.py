"""Epsilon of all shuffled largest responses of a user, for removed and for replaced data, without cached curves."""

import itertools

from fastfedrec.accounting import PLDAccountant, ShuffledReports

N_REPORTS = {50_000: 1_287, 1_000_000: 25_719}  # epsilon 1
# Curves are cached by the epsilon of a report, so each call has a different one.
EPSILONS = (2.5 + 1e-12 * call for call in itertools.count())


class Reports:
    """Epsilon for two numbers of users, which determine the length of the sums' transforms."""

    param_names = ("n_users", "neighboring")
    params = ((50_000, 1_000_000), ("zero_out", "replace"))

    def setup(self, n_users, neighboring):
        epsilon = self._run(n_users, neighboring)
        if abs(epsilon - {"zero_out": 1.0, "replace": 1.556}[neighboring]) > 2e-3:
            raise AssertionError(f"epsilon {epsilon:.4f} differs from the recorded one")

    def time_epsilon(self, n_users, neighboring):
        self._run(n_users, neighboring)

    def _run(self, n_users, neighboring):
        event = ShuffledReports(
            "largest response", next(EPSILONS), N_REPORTS[n_users], n_users, neighboring=neighboring, n_candidates=8
        )
        return PLDAccountant().compose(event).get_epsilon(1e-6)
