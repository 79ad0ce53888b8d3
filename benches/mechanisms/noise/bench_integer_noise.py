"""Integer noise for a million integers, with scale or standard deviation 10; one thread."""

import numpy as np

from benches.core_suite import core
from benches.floors import fastest
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, peer, times_faster, times_of_part
from fastfedrec import Key, hardware
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace, LayeredGaussian, RoundedGaussian

SCALE = 10


KINDS = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}


def _fastfedrec(values, distribution):
    return KINDS[distribution](SCALE, sampler="table").privatize(values, key=Key.from_seed(0), n_threads=1)


def _exact(values, distribution):
    return KINDS[distribution](SCALE).privatize(values, key=Key.from_seed(0))


def _rounded(values, distribution):
    if distribution == "laplace":
        raise NotImplementedError("rounded noise is Gaussian")
    return RoundedGaussian(SCALE).privatize(values, key=Key.from_seed(0), n_threads=1)


def _numpy(values, distribution):
    # PCG64 and floating point are fast, and give no claim on the exact distribution.
    rng = np.random.Generator(np.random.PCG64(0))
    draws = rng.laplace(0, SCALE, len(values)) if distribution == "laplace" else rng.normal(0, SCALE, len(values))
    return values + np.rint(draws).astype(np.int64)


def _opendp(values, distribution):
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    if distribution == "laplace":
        return np.array(dp.m.make_laplace(*space, scale=float(SCALE))(values.tolist()))
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return np.array(dp.m.make_gaussian(*space, scale=float(SCALE))(values.tolist()))


def _diffprivlib(values, distribution):
    from diffprivlib.mechanisms import GaussianDiscrete, Geometric

    if distribution == "laplace":
        mechanism = Geometric(epsilon=1 / SCALE, random_state=0)
    else:
        mechanism = GaussianDiscrete(epsilon=0.5, delta=1e-5, random_state=0)
        mechanism._scale = SCALE
    return np.array([mechanism.randomise(int(v)) for v in values])


@core("time_add_noise", impl=["fastfedrec", "exact_hundredth"])
class AddNoise:
    """Noise against peers; those with one draw in a call get a hundredth or a thousandth of the draws."""

    param_names = ("impl", "distribution")
    params = (
        ("fastfedrec", "rounded", "numpy", "exact_hundredth", "opendp_hundredth", "diffprivlib_thousandth"),
        ("laplace", "gaussian"),
    )

    def setup(self, impl, distribution):
        name, _, part = impl.partition("_")
        run = globals()[f"_{name}"]
        self.run = lambda: run(self.values, distribution)
        self.values = np.arange(1_000_000 // {"": 1, "hundredth": 100, "thousandth": 1000}[part])
        variance = 2 * SCALE**2 if distribution == "laplace" else SCALE**2
        with peer(impl):
            noise = self.run() - self.values
        # The tolerance covers the discretization and the sampling error of the variance.
        if abs(noise.var() / variance - 1) > 0.01 + 20 / np.sqrt(len(noise)):
            raise AssertionError(f"{impl} adds noise of variance {noise.var():.2f}, not {variance}")

    def time_add_noise(self, impl, distribution):
        self.run()


class Layers:
    """Noise far beyond one table, added in place to seven million integers, the number of pairs of 3,700 items."""

    param_names = ("impl", "stddev_bits")
    params = (("fastfedrec", "numpy"), (16, 36, 56))

    def setup(self, impl, stddev_bits):
        self.values = np.zeros(7_000_000, dtype=np.int64)
        self.stddev = 2**stddev_bits
        self.run = getattr(self, f"_{impl}")
        self.run()
        spread = self.values.std() / self.stddev
        if abs(spread - 1) > 0.01:
            raise AssertionError(f"{impl} adds noise with {spread:.3f} times the requested standard deviation")

    def time_add_noise(self, impl, stddev_bits):
        self.run()

    def _fastfedrec(self):
        LayeredGaussian(self.stddev).privatize(self.values, key=Key.from_seed(0), out=self.values, n_threads=1)

    def _numpy(self):
        draws = np.random.Generator(np.random.PCG64(0)).normal(0, self.stddev, len(self.values))
        self.values += np.rint(draws).astype(np.int64)


@nan_without_peers
class InstructionSets(OnInstructionSet):
    """Tables on each instruction set, with equal draws on all of them."""

    param_names = ("mechanism", "instruction_set")
    params = (["discrete_laplace", "discrete_gaussian"], INSTRUCTION_SETS)

    def setup(self, mechanism, instruction_set):
        super().setup(instruction_set)
        self.distribution = mechanism.removeprefix("discrete_")
        self.values = np.arange(1_000_000)
        self.out = np.empty_like(self.values)
        self.noise = KINDS[self.distribution](SCALE, sampler="table")
        with hardware.use_instruction_set("plain"):
            expected = _fastfedrec(self.values, self.distribution)
        np.testing.assert_array_equal(_fastfedrec(self.values, self.distribution), expected)

    def _add(self):
        self.noise.privatize(self.values, key=Key.from_seed(0), out=self.out, n_threads=1)

    def _times(self, other, part):
        return times_of_part(lambda values: other(values, self.distribution), self.values, part, self._add)

    def track_draws_per_second(self, mechanism, instruction_set):
        return len(self.values) / fastest(self._add)

    def track_times_numpy(self, mechanism, instruction_set):
        return self._times(_numpy, 1)

    def track_times_opendp(self, mechanism, instruction_set):
        return self._times(_opendp, 100)

    def track_times_diffprivlib(self, mechanism, instruction_set):
        return self._times(_diffprivlib, 1000)

    def track_floor_share(self, mechanism, instruction_set):
        """Count the keystream alone, with a word for each draw."""
        return times_faster(lambda: Key.from_seed(0).words("bench", size=len(self.values)), self._add)

    track_draws_per_second.unit = "draws/s"
    track_times_numpy.unit = track_times_opendp.unit = track_times_diffprivlib.unit = "times faster"
    track_floor_share.unit = "share of floor"
