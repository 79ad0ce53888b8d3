"""Noise that a server adds to exact sums during a real `fit`, and tests of its distribution.

A fit runs on a `RecordingEngine`; `apply(update)` minus the exact sums is the noise.  `spread_is` compares its width
with the ledger's, and `unrelated` searches for equal draws in two series at any offset.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from fastfedrec import Key
from fastfedrec.audit import audit
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.testing import ALPHA


@dataclass(frozen=True)
class Recorded:
    """One round in the server's view."""

    system: Any
    shards: dict[str, Any]
    key: Any
    event: Any
    update: Any
    before: Any
    after: Any
    # The sums that the server learns from, if a system has them by name.
    learnt: dict[str, np.ndarray] | None


class RecordingEngine(LocalEngine):
    """Local engine that records the arguments and results of `apply`."""

    def __init__(self, n_shards=1):
        super().__init__(n_shards)
        self.rounds = []

    def _as_carried(self, event):
        # The event that this engine can carry is the one in the ledger.
        self._event = super()._as_carried(event)
        return self._event

    def run(self, system, state, interactions, *, key, **options):
        apply, learnt = system.apply, []
        shards = self._shards_of(interactions)
        if hasattr(system, "_learn"):
            # `_learn` receives the sums by name.
            learn = system._learn
            vars(system)["_learn"] = lambda state, sums, number: learnt.append(sums) or learn(state, sums, number)

        def recorded(state, update):
            learnt.clear()
            after = apply(state, update)
            sums = learnt[0] if learnt and not hasattr(after, "noisy") else None
            self.rounds.append(Recorded(system, shards, key, self._event, update, state, after, sums))
            return after

        vars(system)["apply"] = recorded  # the fields of some systems cannot be assigned
        try:
            return super().run(system, state, interactions, key=key, **options)
        finally:
            del vars(system)["apply"]


def is_accounted_for(ledger, rounds):
    """Return whether a ledger holds exactly the events of the recorded rounds."""
    events = [recorded.event for recorded in rounds]
    return dict(ledger.events) == {event: events.count(event) for event in events}


def contributions(recorded, field):
    """Return each user's contribution to a field in the recorded round, (n_users, n_sums)."""
    rows = []
    for name, shard in recorded.shards.items():
        for user in range(shard.n_users):
            single = shard._take_users(np.array([user]))
            update = recorded.system.local_round(
                recorded.before, single, recorded.key, recorded.update.round, sender=name, n_threads=1
            )
            rows.append(update.arrays[field].ravel())
    return np.array(rows)


def spread_is(draws, stddev):
    """Return whether `draws` are consistent with N(0, stddev^2); 5,000 draws detect an error of 10%."""
    assert len(draws) >= 5000
    # The sum of squares of n standard normal draws is chi-square with n degrees of freedom.
    statistic = float(np.square(draws / stddev).sum())
    return bool(min(stats.chi2.cdf(statistic, len(draws)), stats.chi2.sf(statistic, len(draws))) > ALPHA / 2)


def unrelated(first, second):
    """Return whether two series, lists of arrays of equal or truncated length, have no draws in common.

    At every shift of one against the other, their correlation must be consistent with independence.
    """
    pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(first, second, strict=True)]
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    a, b = a / np.sqrt(np.mean(a**2)), b / np.sqrt(np.mean(b**2))
    # Circular cross-correlation at all shifts by the fast Fourier transform.
    correlations = np.fft.irfft(np.fft.rfft(a) * np.conj(np.fft.rfft(b)), len(a)) / len(a)
    if first is second:
        # A series is always correlated with itself at shift 0.
        correlations[0] = 0
    # Bonferroni's bound over all shifts; each correlation has standard deviation 1 / sqrt(n).
    return bool(np.abs(correlations).max() <= stats.norm.isf(ALPHA / 2 / len(a)) / np.sqrt(len(a)))


def relations(series):
    """Return names of series that are related: to themselves, to another, or to themselves under another key.

    `series` maps a name to a list of arrays, one for each fit, and each fit has its own key.
    """
    for name, arrays in series.items():
        if not unrelated(arrays, arrays):
            yield name, name
        half = len(arrays) // 2
        if half and not unrelated(arrays[:half], arrays[half : 2 * half]):
            yield name, "under other keys"
    for one, other in itertools.combinations(series, 2):
        if not unrelated(series[one], series[other]):
            yield one, other


def mu_found(contribution, noise, unit, norm):
    """Return an audit's lower bound of mu, with a user's contribution scaled by `norm`.

    The adversary projects the noisy sums on the contribution of its target, which is the optimal test.
    """

    def release(present, n):
        sums = np.tile(np.rint(norm * present * contribution).astype(np.int64), (n, 1))
        return noise.add_noise(sums, key=Key.from_seed(4), purpose=f"audit.{present}") @ (contribution / unit) / unit

    return audit(release, 0, 1, 1.0, n=400_000, measure="mu", alpha=ALPHA, check_repeats=False).lower_bound


def gaussian_delta(epsilon, mu):
    """Return the delta at an epsilon of releases with a total of `mu` (Balle and Wang 2018, Theorem 8)."""
    return float(special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)))
