"""One cohort of about 10,000 out of a million clients; one thread."""

import numpy as np

from benches.core_suite import core
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import FixedSizeSampling, PoissonSampling

N_CLIENTS, COHORT = 1_000_000, 10_000


def _floor(case):
    # Poisson sampling takes a word for each client, and a fixed size takes a word for each sampled client.
    return keystream_seconds(N_CLIENTS if case.scheme == "poisson" else COHORT)


@core("time_sample", impl=["fastfedrec"])
@with_ratios("time_sample", floor=_floor)
class SampleCohort:
    """Cohorts against NumPy, with a generator that is faster than ChaCha20 and no CSPRNG."""

    param_names = ("impl", "scheme")
    params = (("fastfedrec", "numpy"), ("poisson", "fixed_size"))

    def setup(self, impl, scheme):
        self.scheme, self.run = scheme, getattr(self, f"_{impl}_{scheme}")
        self.key = Key.from_seed(1)
        cohort = self.run()
        if len(set(cohort.tolist())) != len(cohort) or abs(len(cohort) - COHORT) > 600:
            raise AssertionError(f"{impl} draws {len(cohort)} clients, not about {COHORT} different ones")

    def time_sample(self, impl, scheme):
        self.run()

    def _fastfedrec_poisson(self):
        return PoissonSampling(COHORT / N_CLIENTS).sample(N_CLIENTS, key=self.key, n_threads=1)

    def _fastfedrec_fixed_size(self):
        return FixedSizeSampling(COHORT).sample(N_CLIENTS, key=self.key)

    def _numpy_poisson(self):
        return np.flatnonzero(np.random.Generator(np.random.PCG64(0)).random(N_CLIENTS) < COHORT / N_CLIENTS)

    def _numpy_fixed_size(self):
        return np.random.Generator(np.random.PCG64(0)).choice(N_CLIENTS, COHORT, replace=False)
