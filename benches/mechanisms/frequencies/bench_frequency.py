"""Reports of the frequency oracles, with the item popularity of a real data set; one thread."""

import math

import numpy as np

from benches.core_suite import core
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import GRR, OUE

EPSILON = 3.0
N_ITEMS = 100
SIZES = {GRR: 1_000_000, OUE: 50_000}


def draw_items(n_items, size):
    """Return one item for each client."""
    popularity = 1 / np.arange(1, n_items + 1) ** 0.9
    return np.random.default_rng(1).choice(n_items, size, p=popularity / popularity.sum())


def check(name, oracle, values, reports):
    """Raise an error if estimates from reports are too far from the items' frequencies."""
    true = np.bincount(values, minlength=oracle.n_values) / len(values)
    # Seven standard deviations of the most variable estimate are a rare error for a correct oracle.
    worst = abs(oracle.estimate(reports) - true).max()
    if worst > 7 * math.sqrt(oracle.variance(float(true.max()), len(values))):
        raise AssertionError(f"{name} gives a frequency that is off by {worst:.4f}")


def _floor(case):
    # GRR takes a word for each report, and OUE takes one for each bit.
    return keystream_seconds(len(case.values) * (1 if isinstance(case.oracle, GRR) else N_ITEMS))


@core("time_privatize", impl=["fastfedrec"])
@with_ratios("time_privatize", floor=_floor)
class PrivatizeItems:
    """Reports of one item: GRR for a million clients, OUE for 50,000 clients (five million bits)."""

    param_names = ("oracle", "impl")
    params = (("GRR", "OUE"), ("fastfedrec", "numpy"))

    def setup(self, oracle, impl):
        kind = {"GRR": GRR, "OUE": OUE}[oracle]
        self.oracle = kind(EPSILON, N_ITEMS)
        self.run = getattr(self, f"_{impl}_{oracle.lower()}" if impl == "numpy" else "_fastfedrec")
        self.values = draw_items(N_ITEMS, SIZES[kind]).astype(np.uint8)
        check(f"{impl} {oracle}", self.oracle, self.values, self.run(self.values))

    def time_privatize(self, oracle, impl):
        self.run(self.values)

    def _fastfedrec(self, values):
        return self.oracle.privatize(values, key=Key.from_seed(0), n_threads=1)

    def _numpy_grr(self, values):
        # The usual textbook code with PCG64 and doubles, without a claim on the exact probability.
        rng = np.random.Generator(np.random.PCG64(0))
        p = math.exp(EPSILON) / (math.exp(EPSILON) + N_ITEMS - 1)
        other = rng.integers(N_ITEMS - 1, size=len(values))
        return np.where(rng.random(len(values)) < p, values, other + (other >= values))

    def _numpy_oue(self, values):
        rng = np.random.Generator(np.random.PCG64(0))
        bits = rng.random((len(values), N_ITEMS)) < 1 / (math.exp(EPSILON) + 1)
        bits[np.arange(len(values)), values] = rng.random(len(values)) < 0.5
        return bits.astype(np.uint8)
