"""Epsilon of all shuffled largest responses of a user, for data against none and for other data; no curve kept."""

import itertools

from fastfedrec.accounting import PLDAccountant, ShuffledReports

N_REPORTS = {50_000: 1_287, 1_000_000: 25_719}  # epsilon 1
# Curves are kept by the epsilon of a report, and no two calls have the same.
EPSILONS = (2.5 + 1e-12 * call for call in itertools.count())


class Reports:
    """The number of users decides how long the sums' transforms are."""

    param_names = ("n_users", "neighboring")
    params = ((50_000, 1_000_000), ("zero_out", "replace"))

    def setup(self, n_users, neighboring):
        epsilon = self._run(n_users, neighboring)
        if abs(epsilon - {"zero_out": 1.0, "replace": 1.556}[neighboring]) > 2e-3:
            raise AssertionError(f"epsilon {epsilon:.4f} is not what it was")

    def time_epsilon(self, n_users, neighboring):
        self._run(n_users, neighboring)

    def _run(self, n_users, neighboring):
        event = ShuffledReports(
            "largest response", next(EPSILONS), N_REPORTS[n_users], n_users, neighboring=neighboring, n_candidates=8
        )
        return PLDAccountant().compose(event).get_epsilon(1e-6)
