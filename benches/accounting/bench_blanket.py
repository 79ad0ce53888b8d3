"""Epsilon of all shuffled largest responses of a user, for data against none and for other data; no curve kept."""

from fastfedrec.accounting import PLDAccountant, ShuffledReports
from fastfedrec.accounting.blanket import _curves

N_REPORTS = {50_000: 1_287, 1_000_000: 25_719}  # epsilon 1


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
        _curves.cache_clear()
        event = ShuffledReports(
            "largest response", 2.5, N_REPORTS[n_users], n_users, neighboring=neighboring, n_candidates=8
        )
        return PLDAccountant().compose(event).get_epsilon(1e-6)
