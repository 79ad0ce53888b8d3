"""Records of the events and the noisy sums of a fit, in order; on other data it is given the same noisy sums.

With the releases held fixed, what differs between two fits is what one user's data change: the sensitivity.
"""

from contextlib import contextmanager
from unittest import mock

import numpy as np

from fastfedrec.accounting import CentralRelease, Gaussian, Laplace, Ledger, seen_event
from fastfedrec.accounting.events import ZCDP, DiscreteGaussianRelease
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise


class Segment:
    """Some events, and what was released under them: (mechanism, exact sums, noisy sums)."""

    def __init__(self):
        self.events, self.releases = [], []

    @property
    def relations(self):
        """Those of the events; none where sums are released that no event was recorded for."""
        return {getattr(event, "neighboring", None) for event in self.events}

    def budget(self, is_replaced=False):
        """Add up the squares of mu and the pure epsilons that the events state, or that ledgers make of them."""
        mu_squared = epsilon = 0.0
        for event in [seen_event(event, "public") for event in self.events] if is_replaced else self.events:
            if isinstance(event, Gaussian):
                mu_squared += event.count / event.noise_multiplier**2
            elif isinstance(event, ZCDP):
                mu_squared += 2 * event.count * event.rho
            elif isinstance(event, DiscreteGaussianRelease):
                mu_squared += event.count * (event.sensitivity / event.stddev) ** 2
            elif isinstance(event, Laplace):
                epsilon += event.count / event.noise_multiplier
            elif isinstance(event, CentralRelease):
                epsilon += event.count * event.epsilon
        return mu_squared, epsilon

    def cost(self, other):
        """The same of what was really released, on these data and on the other segment's."""
        mu_squared = epsilon = 0.0
        assert len(self.releases) == len(other.releases)
        for (mechanism, sums, _), (again, others, _) in zip(self.releases, other.releases, strict=True):
            assert repr(mechanism) == repr(again)
            assert sums.shape == others.shape
            change = (sums.astype(object) - others.astype(object)).ravel().astype(float)
            if isinstance(mechanism, DiscreteLaplace):
                epsilon += np.abs(change).sum() / float(mechanism.scale)
            else:
                mu_squared += np.square(change).sum() / float(mechanism.stddev) ** 2
        return mu_squared, epsilon


@contextmanager
def _recording(ledger, segments, noisy_sums):
    add, record = IntegerNoise._add, Ledger.record

    def recorded_add(self, values, key, purpose, round_number, out, n_threads):
        exact = np.array(values)
        noisy = add(self, values, key, purpose, round_number, out, n_threads)
        if noisy_sums is not None:
            noisy[...] = next(noisy_sums)
        segments[-1].releases.append((self, exact, noisy.copy()))
        return noisy

    def recorded_event(self, event, **options):
        record(self, event, **options)
        if self is not ledger:  # of a plan
            return
        if segments[-1].releases:
            segments.append(Segment())
        segments[-1].events.append(event)

    with mock.patch.object(IntegerNoise, "_add", recorded_add), mock.patch.object(Ledger, "record", recorded_event):
        yield


def transcript(fit, like=None):
    """The segments of `fit(ledger)`; given those of another, its noisy sums take the place of this one's."""
    ledger, segments = Ledger(), [Segment()]
    noisy_sums = None if like is None else iter([noisy for segment in like for *_, noisy in segment.releases])
    with _recording(ledger, segments, noisy_sums):
        fit(ledger)
    return segments
