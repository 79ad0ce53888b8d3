"""Records of a fit's events and noisy sums, in order; a fit on other data can receive the same noisy sums.

With the releases fixed, two fits differ by the effect of one user's data alone: the sensitivity.
"""

from contextlib import contextmanager
from unittest import mock

import numpy as np

from fastfedrec.accounting import CentralRelease, Gaussian, Laplace, Ledger, seen_event
from fastfedrec.accounting.events import ZCDP, DiscreteGaussianRelease
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise


class Segment:
    """Events, with the releases under them: (mechanism, exact sums, noisy sums)."""

    def __init__(self):
        self.events, self.releases = [], []

    @property
    def relations(self):
        """Return the events' relations, or none if sums are released without a recorded event."""
        return {getattr(event, "neighboring", None) for event in self.events}

    def budget(self, is_replaced=False):
        """Add up the squares of mu and the pure epsilons that the events state, or that ledgers derive from them."""
        mu_squared = epsilon = 0.0
        for event in [seen_event(event, "public") for event in self.events] if is_replaced else self.events:
            if isinstance(event, Gaussian):
                # Gaussian releases compose by mu^2, with mu = 1 / noise multiplier.
                mu_squared += event.count / event.noise_multiplier**2
            elif isinstance(event, ZCDP):
                # A zCDP cost rho corresponds to mu^2 = 2 rho.
                mu_squared += 2 * event.count * event.rho
            elif isinstance(event, DiscreteGaussianRelease):
                mu_squared += event.count * (event.sensitivity / event.stddev) ** 2
            elif isinstance(event, Laplace):
                epsilon += event.count / event.noise_multiplier
            elif isinstance(event, CentralRelease):
                epsilon += event.count * event.epsilon
        return mu_squared, epsilon

    def cost(self, other):
        """Return the cost of the actual releases, on these data and on the other segment's."""
        mu_squared = epsilon = 0.0
        assert len(self.releases) == len(other.releases)
        for (mechanism, sums, _), (other_mechanism, other_sums, _) in zip(self.releases, other.releases, strict=True):
            assert repr(mechanism) == repr(other_mechanism)
            assert sums.shape == other_sums.shape
            # Python's integers avoid overflow of the difference.
            change = (sums.astype(object) - other_sums.astype(object)).ravel().astype(float)
            if isinstance(mechanism, DiscreteLaplace):
                # Laplace noise costs the L1 distance over its scale.
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
        if self is not ledger:  # the ledger is that of a plan
            return
        if segments[-1].releases:
            # An event after a release begins a new segment.
            segments.append(Segment())
        segments[-1].events.append(event)

    with mock.patch.object(IntegerNoise, "_add", recorded_add), mock.patch.object(Ledger, "record", recorded_event):
        yield


def transcript(fit, like=None):
    """Return the segments of `fit(ledger)`; given another fit's segments, use their noisy sums."""
    ledger, segments = Ledger(), [Segment()]
    noisy_sums = None if like is None else iter([noisy for segment in like for *_, noisy in segment.releases])
    with _recording(ledger, segments, noisy_sums):
        fit(ledger)
    return segments
