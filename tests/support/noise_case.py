"""What a server adds to exact sums during a real `fit`, taken down, and what noise must be like.

A fit runs on a `RecordingEngine`; `apply(update)` minus the exact sums is the noise.  `spread_is` compares its width
with what the ledger says, `unrelated` looks for the same draws in two places, wherever they stand.
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
    """One round as the server saw it."""

    system: Any
    shards: dict[str, Any]
    key: Any
    event: Any
    update: Any
    before: Any
    after: Any
    learnt: dict[str, np.ndarray] | None  # the sums that the server learns from, where a system has them by name


class RecordingEngine(LocalEngine):
    """A local engine that keeps what `apply` was given and what came of it."""

    def __init__(self, n_shards=1):
        super().__init__(n_shards)
        self.rounds = []

    def _as_carried(self, event):
        self._event = super()._as_carried(event)
        return self._event

    def run(self, system, state, interactions, *, key, **options):
        apply, learnt = system.apply, []
        shards = self._shards_of(interactions)
        if hasattr(system, "_learn"):
            learn = system._learn
            system._learn = lambda state, sums: learnt.append(sums) or learn(state, sums)

        def recorded(state, update):
            learnt.clear()
            after = apply(state, update)
            sums = learnt[0] if learnt else None
            self.rounds.append(Recorded(system, shards, key, self._event, update, state, after, sums))
            return after

        system.apply = recorded
        try:
            return super().run(system, state, interactions, key=key, **options)
        finally:
            del system.apply


def is_accounted_for(ledger, rounds):
    """Whether a ledger holds the events of the recorded rounds, and no others."""
    events = [recorded.event for recorded in rounds]
    return dict(ledger.events) == {event: events.count(event) for event in events}


def contributions(recorded, field):
    """Of every user alone what it adds to a field, in the recorded round; (n_users, n_sums)."""
    rows = []
    for name, shard in recorded.shards.items():
        for user in range(shard.n_users):
            alone = shard._take_users(np.array([user]))
            update = recorded.system.local_round(
                recorded.before, alone, recorded.key, recorded.update.round, sender=name, n_threads=1
            )
            rows.append(update.arrays[field].ravel())
    return np.array(rows)


def spread_is(draws, stddev):
    """Whether normal draws around 0 with this standard deviation are consistent with `draws` (5,000 see 10%)."""
    assert len(draws) >= 5000
    statistic = float(np.square(draws / stddev).sum())
    return bool(min(stats.chi2.cdf(statistic, len(draws)), stats.chi2.sf(statistic, len(draws))) > ALPHA / 2)


def unrelated(first, second):
    """Whether two series, lists of arrays that are the same length or cut to it, have no draws in common.

    At every shift of one against the other their correlation must be that of independent ones.
    """
    pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(first, second, strict=True)]
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    a, b = a / np.sqrt(np.mean(a**2)), b / np.sqrt(np.mean(b**2))
    correlations = np.fft.irfft(np.fft.rfft(a) * np.conj(np.fft.rfft(b)), len(a)) / len(a)
    if first is second:
        correlations[0] = 0
    return bool(np.abs(correlations).max() <= stats.norm.isf(ALPHA / 2 / len(a)) / np.sqrt(len(a)))


def relations(series):
    """Names of series that are related: to themselves, to another, or to themselves under another key.

    `series` maps a name to a list of arrays, one for each fit, and each fit has a key of its own.
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


def mu_found(own, noise, unit, norm):
    """The lower bound of an audit's mu, where what one user adds is `norm` times as long as it should be.

    The adversary projects the noisy sums on the contribution that it looks for, which is the best test there is.
    """

    def release(present, n):
        sums = np.tile(np.rint(norm * present * own).astype(np.int64), (n, 1))
        return noise.add_noise(sums, key=Key.from_seed(4), purpose=f"audit.{present}") @ (own / unit) / unit

    return audit(release, 0, 1, 1.0, n=400_000, measure="mu", alpha=ALPHA).lower_bound


def gaussian_delta(epsilon, mu):
    """Of releases that cost `mu` together, the delta at an epsilon (Balle and Wang 2018, Theorem 8)."""
    return float(special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)))
