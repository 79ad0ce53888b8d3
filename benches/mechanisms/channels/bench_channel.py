"""Reports of finite channels, one for each value; one thread."""

import math

import numpy as np

from benches.ratios import keystream_seconds, peer, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import OptimalKary, TruncatedGeometric

EPSILON = 2.0
RATINGS = [1, 2, 3, 4, 5]


def _floor(case):
    # Each report takes a word.
    return keystream_seconds(len(case.values))


@with_ratios("time_privatize", floor=_floor)
class PrivatizeRatings:
    """Reports of a million ratings with the skew of a real data set; slow peers get a hundredth of them."""

    param_names = ("impl",)
    params = (
        ("fastfedrec_optimal", "fastfedrec_geometric", "numpy_geometric", "diffprivlib_hundredth", "opendp_hundredth"),
    )

    def setup(self, impl):
        self.channel = OptimalKary(EPSILON, RATINGS) if "optimal" in impl else TruncatedGeometric(EPSILON, RATINGS)
        self.run = getattr(self, f"_{impl.partition('_')[0]}")
        size = 10_000 if impl.endswith("hundredth") else 1_000_000
        self.values = np.random.default_rng(1).choice(5, size, p=[0.06, 0.11, 0.26, 0.35, 0.22]).astype(np.uint8)
        with peer(impl):
            reports = self.run(self.values)
        error = np.mean(self.channel.estimate(reports)) - np.mean(self.values + 1.0)
        if abs(error) > 6 * math.sqrt(self.channel.worst_variance / size):
            raise AssertionError(f"{impl} gives a mean that is off by {error:.4f}")

    def time_privatize(self, impl):
        self.run(self.values)

    def _fastfedrec(self, values):
        return self.channel.privatize(values, key=Key.from_seed(0), n_threads=1)

    def _numpy(self, values):
        # The difference of two geometric numbers in doubles, without a claim on the exact probability.
        rng, p = np.random.Generator(np.random.PCG64(0)), -math.expm1(-EPSILON / 4)
        steps = rng.geometric(p, len(values)) - rng.geometric(p, len(values))
        return np.clip(values + steps, 0, 4)

    def _diffprivlib(self, values):
        from diffprivlib.mechanisms import GeometricTruncated

        mechanism = GeometricTruncated(epsilon=EPSILON, sensitivity=4, lower=0, upper=4, random_state=0)
        return np.array([mechanism.randomise(int(v)) for v in values])

    def _opendp(self, values):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
        measurement = dp.m.make_geometric(*space, scale=4 / EPSILON, bounds=(0, 4))
        return np.clip([measurement(int(v)) for v in values], 0, 4)
