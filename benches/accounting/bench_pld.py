"""Epsilon of 1,000 Gaussian rounds, for Poisson sampling, fixed cohorts and small deltas; other accountants."""

import numpy as np

from fastfedrec.accounting import Gaussian, PLDAccountant, RDPAccountant

PROBABILITY, ROUNDS, DELTA = 0.01, 1_000, 1e-6
EPSILON = 2.1245  # result of dp-accounting 0.6.0


def _fastfedrec():
    step = Gaussian(1.0, neighboring="add_remove", sampling="poisson", sampling_probability=PROBABILITY)
    return PLDAccountant().compose(step, ROUNDS).get_epsilon(DELTA)


def _dp_accounting():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant as Peer

    step = dp_accounting.PoissonSampledDpEvent(PROBABILITY, dp_accounting.GaussianDpEvent(1.0))
    return Peer().compose(step, ROUNDS).get_epsilon(DELTA)


def _prv_accountant():
    import prv_accountant as prv

    mechanism = prv.PoissonSubsampledGaussianMechanism(sampling_probability=PROBABILITY, noise_multiplier=1.0)
    accountant = prv.PRVAccountant(
        prvs=mechanism, max_self_compositions=ROUNDS, eps_error=1e-3, delta_error=DELTA / 1000
    )
    return accountant.compute_epsilon(delta=DELTA, num_self_compositions=[ROUNDS])[2]


class Poisson:
    """Poisson sampling, where every implementation must give the same epsilon within 2e-3."""

    param_names = ("impl",)
    params = (("fastfedrec", "dp_accounting", "prv_accountant"),)

    def setup(self, impl):
        self.run = {"fastfedrec": _fastfedrec, "dp_accounting": _dp_accounting, "prv_accountant": _prv_accountant}[impl]
        try:
            epsilon = self.run()
        except ImportError as error:
            raise NotImplementedError(f"skipped: {error}") from None
        if abs(epsilon - EPSILON) > 2e-3:
            raise AssertionError(f"{impl} gives epsilon {epsilon:.4f}, not {EPSILON}")

    def time_epsilon(self, impl):
        self.run()


class WithoutReplacement:
    """Cohorts of fixed size, which no other accountant supports."""

    param_names = ("cohort_size",)
    params = ((5, 30),)

    def setup(self, cohort_size):
        step = {"neighboring": "replace", "sampling": "without_replacement", "n_users": 4800}
        self.event = Gaussian(1.0, cohort_size=cohort_size, **step)
        epsilon = PLDAccountant().compose(self.event, ROUNDS).get_epsilon(DELTA)
        if abs(epsilon - {5: 0.2268, 30: 1.5245}[cohort_size]) > 1e-4:
            raise AssertionError(f"epsilon {epsilon:.4f} differs from the recorded value")

    def time_epsilon(self, cohort_size):
        PLDAccountant().compose(self.event, ROUNDS).get_epsilon(DELTA)


class SmallDelta:
    """Deltas that need tilted masses, and counts that fill the largest grid."""

    param_names = ("count", "delta")
    params = ((1_000, 1_000_000), (1e-12, 1e-200))

    def setup(self, count, delta):
        self.event = Gaussian(
            4.0, neighboring="add_remove", sampling="poisson", sampling_probability=PROBABILITY, count=count
        )
        epsilon = PLDAccountant().compose(self.event).get_epsilon(delta)
        # If the loss distribution gives no smaller bound, the result is the Rényi bound, rounded up.
        if not 0 < epsilon <= RDPAccountant().compose(self.event).get_epsilon(delta) * (1 + 1e-8):
            raise AssertionError(f"epsilon {epsilon:.4f} is above the Renyi accountant's")

    def time_epsilon(self, count, delta):
        PLDAccountant().compose(self.event).get_epsilon(delta)

    def time_delta(self, count, delta):
        PLDAccountant().compose(self.event).get_delta(1.0)


class Renyi:
    """Integer and fractional orders of a sampled Gaussian, with different noise in each call."""

    # Divergences are cached by the noise multiplier.

    def setup(self):
        self.noises = iter(np.linspace(0.5, 5.0, 100_000))

    def time_epsilon(self):
        step = Gaussian(
            next(self.noises), neighboring="add_remove", sampling="poisson", sampling_probability=PROBABILITY
        )
        RDPAccountant().compose(step, ROUNDS).get_epsilon(DELTA)
