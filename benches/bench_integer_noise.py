"""Integer noise added to a million integers, scale or standard deviation 10; one thread."""

import numpy as np

from fastfedrec import Key
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace, RoundedGaussian

SCALE = 10


def _fastfedrec(values, distribution):
    kinds = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}
    return kinds[distribution](SCALE, sampler="table").privatize(values, key=Key.from_seed(0), n_threads=1)


def _exact(values, distribution):
    kinds = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}
    return kinds[distribution](SCALE).privatize(values, key=Key.from_seed(0))


def _rounded(values, distribution):
    if distribution == "laplace":
        raise NotImplementedError("rounded noise is Gaussian")
    return RoundedGaussian(SCALE).privatize(values, key=Key.from_seed(0), n_threads=1)


def _numpy(values, distribution):
    # PCG64 and floating point: as fast as it gets without a claim for what runs.
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


class AddNoise:
    """Peers that draw one at a time are asked a hundredth or a thousandth of the draws."""

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
        try:
            noise = self.run() - self.values
        except ImportError:
            raise NotImplementedError(f"{impl} is not installed") from None
        if abs(noise.var() / variance - 1) > 0.01 + 20 / np.sqrt(len(noise)):
            raise AssertionError(f"{impl} adds noise of variance {noise.var():.2f}, not {variance}")

    def time_add_noise(self, impl, distribution):
        self.run()
