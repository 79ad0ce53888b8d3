"""Figures of a membership attack: AUC with DeLong's interval, and the bootstrap, against a loop of scikit-learn."""

import numpy as np

from benches.ratios import nan_without_peers, times_faster
from fastfedrec import Key
from fastfedrec.studies.membership._figures import RocCurve

RATES = (0.01, 0.001)
N_REPLICATES = 1000
N_IN_THE_LOOP = 10  # replicates of the peer, which all take the same time


class _Scores:
    """Scores of users, half of them members, without ties."""

    def _make(self, n_users):
        from sklearn.metrics import roc_auc_score, roc_curve

        self.curve_of, self.area_of = roc_curve, roc_auc_score
        rng = np.random.default_rng(1)
        self.is_member = np.arange(n_users) % 2 == 0
        self.scores = rng.normal(size=n_users) + 0.5 * self.is_member
        self.key, self.rng = Key.from_seed(1), rng
        self._check()

    def _fastfedrec(self):
        curve = RocCurve(self.scores, self.is_member)
        return [curve.auc(0.05), *curve.resampled(RATES, N_REPLICATES, 0.05, self.key)]

    def _peer(self):
        members, non_members = np.flatnonzero(self.is_member), np.flatnonzero(~self.is_member)
        figures = []
        for _ in range(N_IN_THE_LOOP):
            drawn = np.concatenate([self.rng.choice(side, len(side)) for side in (members, non_members)])
            figures.append(self._peer_figures(drawn))
        return figures

    def _peer_figures(self, users):
        labels, scores = self.is_member[users], self.scores[users]
        false, true, _ = self.curve_of(labels, scores, drop_intermediate=False)
        hits = [true[false <= rate].max() for rate in RATES]
        return [self.area_of(labels, scores), (true - false).max(), *hits]

    def _check(self):
        ours = self._fastfedrec()
        np.testing.assert_allclose([e.value for e in ours], self._peer_figures(np.arange(len(self.scores))), atol=1e-12)
        spread = np.quantile(self._peer(), [0.0, 1.0], axis=0)  # ten replicates are mostly within our 95%
        for estimate, low, high in zip(ours[1:], *spread[:, 1:], strict=True):
            if not (estimate.low <= (low + high) / 2 <= estimate.high):
                raise AssertionError(f"the interval {estimate} does not contain the middle of the peer's replicates")


class Figures(_Scores):
    """All figures of an attack; the peer's time is for 10 of the 1,000 replicates."""

    param_names = ("impl", "n_users")
    params = (("fastfedrec", "scikit-learn"), (600, 6000))

    def setup(self, impl, n_users):
        self._make(n_users)
        self.run = {"fastfedrec": self._fastfedrec, "scikit-learn": self._peer}[impl]

    def time_figures(self, impl, n_users):
        self.run()

    peakmem_figures = time_figures


@nan_without_peers
class RatioToPeers(_Scores):
    """scikit-learn's time for all replicates over ours, with alternating calls in one process."""

    param_names = ("n_users",)
    params = ((600, 6000),)
    unit = "times faster"

    def setup(self, n_users):
        self._make(n_users)

    def track_times_scikit_learn(self, n_users):
        return N_REPLICATES / N_IN_THE_LOOP * times_faster(self._peer, self._fastfedrec)
